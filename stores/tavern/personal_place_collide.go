//go:build tally_tavern_collide

package tavern

// This file is in no product. The law of personal settings builds with it, to show that it
// would notice: projects are told apart by the key that the original had.
func keyOfProject(path string) (string, error) { return ProjectKey(path), nil }
