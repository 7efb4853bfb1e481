package errata_test

// need gives the value of a call that must work.
func need[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
