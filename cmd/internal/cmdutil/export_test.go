package cmdutil

import "strings"

// OtherWords are words that are no command with what they mean.
func OtherWords() map[string][]string {
	all := make(map[string][]string)
	for _, o := range otherWords {
		for _, word := range strings.Fields(o.words) {
			all[word] = append(all[word], strings.Split(o.meant, "|")...)
		}
	}
	return all
}
