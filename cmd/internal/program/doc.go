package program

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/edit"
	"github.com/tallylog/tally/cmd/internal/inspect"
)

// newDoc returns the noun doc. Its verbs that read and its verbs that write are in different packages.
func newDoc(a *cmdutil.App) *cobra.Command {
	return cmdutil.Noun(&cobra.Command{
		Use: "doc", Short: "Write documents with a history, read and compare their revisions",
		Long: `Write documents with a history, read and compare their revisions. A document is a text or
any other bytes under a name KIND/ID. Each write adds a revision, and every revision can be
read until the document is purged.

` + cmdutil.DocumentNames,
		Example: cmdutil.Examples("echo 'Ovens at 190 degrees.' | tally doc put note/ovens --create", "tally doc ls", "tally doc log note/ovens", "tally doc cat note/ovens"),
	}, append(inspect.Documents(a), edit.Documents(a)...)...)
}
