package embedded

import "io/fs"

// ownerOf takes every file for this user's: who may do what stands in access lists here,
// which a folder of a user's has from the one above it.
func ownerOf(fs.FileInfo) (user int, mine bool) { return 0, true }

func mayWrite(string) error { return nil }

func orReadOnly(_ string, err error) error { return err }
