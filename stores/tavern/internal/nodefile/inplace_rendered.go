//go:build tally_tavern_rendered

package nodefile

import "github.com/tallylog/tally/stores/tavern/internal/frontmatter"

// This file is in no product. The law of what a person typed builds with it, to show that it
// would notice: the file is made anew of what the node says.
func Edit(text []byte, want Node) ([]byte, error) {
	d := frontmatter.Parse(text)
	d.Fields["state"], d.Title, d.Body = want.State, want.Name, ""
	if want.UpdatedAt != "" {
		d.Fields[nodeKeys.updated] = want.UpdatedAt
	}
	if want.Assignment != "" {
		d.Body = assignmentHeader + "\n\n" + want.Assignment + "\n"
	}
	text, err := frontmatter.Render(d)
	if err != nil {
		return nil, err
	}
	f, err := read(text)
	if err != nil {
		return nil, err
	}
	return f.editCommitments(want.Commitments)
}
