package perstackdir

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally/stores/internal/sessiondir"
)

const rootName = "perstack"

var folders = sessiondir.Shape{
	Layout: Format, Sessions: jobsName, Inside: rootName,
	IsRoot:     looksLikeRoot,
	HasSession: looksLikeJob,
	Nothing:    "holds no perstack/jobs",
}

// locate finds the root for a path that a user gave: perstack/, the folder around it,
// perstack/jobs, or the folder of one job.
func locate(path string) (sessiondir.Location, error) {
	at, err := folders.Find(path)
	if err != nil {
		return at, err
	}
	if at.Name == rootName { // as all are called: that tells nothing
		at.Name = filepath.Base(filepath.Dir(at.Root))
	}
	return at.Settled()
}

func looksLikeRoot(dir string) bool {
	return sessiondir.Shape{HasSession: looksLikeJob}.HoldsSession(filepath.Join(dir, jobsName))
}

// looksLikeJob reports whether a folder has a file that only a job has: the runtime writes
// neither job.json nor run-setting.json, and another program may have a job.json.
func looksLikeJob(dir string) bool {
	return sessiondir.IsFile(filepath.Join(dir, jobName)) && isJob(filepath.Join(dir, jobName)) ||
		holds(filepath.Join(dir, checkpointsName), func(name string) bool { return strings.HasSuffix(name, suffix) }) ||
		holdsRun(filepath.Join(dir, runsName))
}

func holdsRun(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.IsDir() && holds(filepath.Join(dir, e.Name()), func(name string) bool { return placeOf(runsName+"/r/"+name).part != partOther }) {
			return true
		}
	}
	return false
}

// holds reports whether a folder has a file whose name is as it should be.
func holds(dir string, is func(name string) bool) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if is(e.Name()) && e.Type().IsRegular() {
			return true
		}
	}
	return false
}

// isJob reports whether a file names the members of a job, whole or cut off.
func isJob(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 4<<10)
	n, _ := f.Read(head)
	return strings.Contains(string(head[:n]), `"coordinatorExpertKey"`) || strings.Contains(string(head[:n]), `"totalSteps"`)
}
