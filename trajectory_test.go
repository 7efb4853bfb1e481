package tally_test

import (
	"github.com/tallylog/tally"
	"github.com/tallylog/tally/log"
)

var anyway = log.Any

func trajectoryMeta() *tally.TrajectoryMeta {
	return &tally.TrajectoryMeta{Version: 1, TrajectoryID: "c1", CreatedAt: "2026-01-23T12:35:42.341Z", Goal: "a < b & c", Persona: tally.Persona{Description: "d"}}
}
