package log

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A server that answers nothing for a while is asked again: each second in the first six, so that the next leader of a
// cluster hears the question, and later within the time that a slow disk needs. After [away] it is asked once more.
func TestAskOfASilentServer(t *testing.T) {
	t.Run("B-33 questions to a leader that is silent", func(t *testing.T) {
		for silent := time.Duration(0); silent <= away; silent += 250 * time.Millisecond {
			for name, answer := range map[string]error{"nothing": nil, "that it has no leader": &jetstream.APIError{ErrorCode: codeNoLeader}} {
				synctest.Test(t, func(t *testing.T) {
					begun := time.Now()
					got, err := ask(t.Context(), func(ctx context.Context) (int, error) {
						switch {
						case time.Since(begun) >= silent:
							return 7, nil
						case answer == nil:
							<-ctx.Done()
							return 0, ctx.Err()
						}
						return 0, answer
					})
					late := time.Since(begun) - silent
					limit := time.Second
					if silent > away/2 {
						limit = away / 2 // and the pauses before
					}
					if answer != nil {
						limit = 0
					}
					if err != nil || got != 7 || late > limit+500*time.Millisecond {
						t.Errorf("the server says %s for %v: got %v, %v after another %v", name, silent, got, err, late)
					}
				})
			}
		}
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			_, err := ask(t.Context(), func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
			if took := time.Since(begun); !errors.Is(err, ErrUnavailable) || took < away || took > 2*away {
				t.Errorf("a server that never answers: got %v after %v", err, took)
			}
		})
	})
}

// What a server or an account has no room for is ErrFull, with the server's words.
func TestServerIsFull(t *testing.T) {
	t.Run("B-26 a server without room", func(t *testing.T) {
		for code, text := range map[int]string{10002: "resource limits exceeded for account", 10023: "insufficient resources",
			10047: "insufficient storage resources available", 10077: "maximum bytes exceeded"} {
			want := "store full: " + text
			if err := answerError(code, text); !errors.Is(err, ErrFull) || err.Error() != want {
				t.Errorf("an append is refused with code %d: got %v, want %s", code, err, want)
			}
			if code == codeStoreFailed {
				continue // only appends get it
			}
			if err := apiError(&jetstream.APIError{ErrorCode: jetstream.ErrorCode(code), Description: text}); !errors.Is(err, ErrFull) || err.Error() != want {
				t.Errorf("a request is refused with code %d: got %v, want %s", code, err, want)
			}
		}
	})
}
