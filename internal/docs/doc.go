// Package docs holds the pages of the folder docs to the code that they speak
// of. It has nothing but tests.
package docs
