// Package storagetest has shared parts of tests of storages: a storage in memory with a file system's faults ([Mem]),
// one that fails on purpose ([Faulty]), and the conformance suite that every layouts.Storage passes ([Run]).
package storagetest
