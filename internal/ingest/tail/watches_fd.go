//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package tail

// kqueue takes an open file for each file of a watched folder.
const maxWatches = 64
