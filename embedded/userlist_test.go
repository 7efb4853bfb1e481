package embedded

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

// A password that was replaced admits nobody, also if it admitted somebody before or is being compared meanwhile.
func TestReplacedPassword(t *testing.T) {
	user := func(password string, cost int) []innerUser {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), cost)
		if err != nil {
			t.Fatal(err)
		}
		return []innerUser{{Account: Account{Name: "ann", Password: string(hash)}}}
	}
	admits := func(l *userList, password string, want bool) {
		t.Helper()
		if _, err := l.admit("ann", password); (err == nil) != want || err != nil && !errors.Is(err, errWrongLogin) {
			t.Errorf("the password %q: got %v, want admitted %v", password, err, want)
		}
	}
	l := new(userList)
	l.set(user("old", bcrypt.MinCost))
	for range 2 { // the second time by the digest
		admits(l, "old", true)
		admits(l, "new", false)
	}
	l.set(user("new", bcrypt.MinCost))
	admits(l, "old", false)
	admits(l, "new", true)
	admits(l, "old", false)

	l.set(user("slow", bcrypt.MinCost+4))
	other := user("new", bcrypt.MinCost)
	done := make(chan error, 1)
	go func() {
		_, err := l.admit("ann", "slow")
		done <- err
	}()
	for l.hashing.TryLock() { // until the password is being compared
		l.hashing.Unlock()
		runtime.Gosched()
	}
	l.set(other)
	if err := <-done; !errors.Is(err, errWrongLogin) {
		t.Errorf("a password that was replaced while it was compared: got %v", err)
	}
	admits(l, "slow", false)
	admits(l, "new", true)
	l.set(nil)
	admits(l, "new", false)
}
