package config

import "path/filepath"

// PricesFile returns the path of the user's file of prices, or "" if the home directory is unknown. The file need not
// exist. getenv is os.Getenv except in tests.
func PricesFile(getenv func(string) string) string {
	base := configHome(getenv)
	if base == "" {
		return ""
	}
	return filepath.Join(base, "tally", "prices.json")
}
