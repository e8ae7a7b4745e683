// Package examples has programs that each show one use of this module, in a folder of
// its own. docs/RECIPES.md describes them.
package examples
