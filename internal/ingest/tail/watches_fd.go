//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package tail

// kqueue needs an open file for each file of a watched folder.
const maxWatches = 64
