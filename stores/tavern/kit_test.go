package tavern_test

import "testing"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// need gives the value of a call that must work.
func need[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
