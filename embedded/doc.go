// Package embedded runs the event log's server inside this process, on a directory
// of this machine.
//
// One process owns a directory at a time, for as long as it lives: [Start]. Others
// use the owner's server: [Attach]. What is acknowledged is on disk.
package embedded
