package cli

import (
	"cmp"
	"strings"
)

// IsUTF8 reports whether the locale uses UTF-8. Without a locale, decoration outside of ASCII is better left out.
func IsUTF8(getenv func(string) string) bool {
	locale := strings.ToLower(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}
