// Package kvjson has keys, values, events and transactions as lines of JSON: those of the commands
// and of package httpkv. Bytes that are not UTF-8 are in base64, as in package jsonline.
package kvjson
