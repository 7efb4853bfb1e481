package errata_test

// need returns the value of a call that must succeed.
func need[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
