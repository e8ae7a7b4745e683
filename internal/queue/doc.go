// Package queue holds what package sockets queues messages with, and waits with.
// It knows neither socket types nor networks.
package queue
