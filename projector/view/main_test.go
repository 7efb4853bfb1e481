package view_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/projector/view"
)

// keeperOf is set in a process that keeps the views of a store.
const keeperOf = "VIEW_KEEPER_OF"

func TestMain(m *testing.M) {
	if dir := os.Getenv(keeperOf); dir != "" {
		keep(dir)
	}
	storetest.Main(m)
}

// keep keeps views until the process is killed, or its parent ends.
func keep(dir string) {
	st, err := embedded.Open(context.Background(), embedded.Options{ConfigDir: dir, Backend: "local", Store: dir, Views: []view.View{linesFold.View(), linesOwn.View()}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("attached")
	parent := os.Getppid()
	for os.Getppid() == parent {
		time.Sleep(100 * time.Millisecond)
	}
	st.Close()
	os.Exit(0)
}
