//go:build !unix

package backup_test

func limitFiles(string) { panic("this system knows no limit") }
