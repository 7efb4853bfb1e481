// Package storagetest has what tests of storages need: a storage in memory with a file system's
// faults ([Mem]), one to which things happen ([Faulty]), and the conformance suite that every
// formats.Storage passes ([Run]).
package storagetest
