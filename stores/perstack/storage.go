package perstack

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/filename"
)

// CreateInitialJob makes a job that has just begun: it runs, and nothing was done yet. A
// maximum of steps may be given. It stores nothing.
func CreateInitialJob(jobID, expertKey string, maxSteps ...int64) Job {
	j := Job{ID: jobID, Status: JobRunning, CoordinatorExpertKey: expertKey, StartedAt: time.Now().UnixMilli()}
	if len(maxSteps) > 0 {
		j.MaxSteps = maxSteps[0]
	}
	if len(maxSteps) > 0 && j.MaxSteps == 0 {
		j.Unknown = events.Fields{{Name: "maxSteps", Value: events.Raw("0")}}
	}
	return j
}

// StoreJob stores a job as it is handed over, whatever was there: see [Handle.Save] and, for
// several who change one job, [Handle.Update].
func StoreJob(ctx context.Context, st *tally.Store, j Job) error {
	_, err := handleOf(st, j.ID).Save(ctx, j)
	return err
}

// RetrieveJob returns a job. One that was never stored is tally.ErrNotFound, one that is not
// what the schema asks for an *events.InvalidError.
func RetrieveJob(ctx context.Context, st *tally.Store, jobID string) (Job, error) {
	return handleOf(st, jobID).Load(ctx)
}

// GetAllJobs returns all jobs, those that started last first. What is invalid is left out.
func GetAllJobs(ctx context.Context, st *tally.Store) ([]Job, error) { return Jobs(ctx, st, Query{}) }

// GetJobsDir is the folder of all jobs, below the working directory of now.
func GetJobsDir() string {
	dir, err := os.Getwd()
	if err != nil {
		dir = "." // which is where it is, whatever its name
	}
	return filepath.Join(dir, "perstack", "jobs")
}

// GetJobDir is the folder of a job. An id that could not be the name of a folder, or would
// lead out of it, is spelled so that it is one.
func GetJobDir(jobID string) string { return filepath.Join(GetJobsDir(), filename.Of(jobID)) }

// GetCheckpointDir is the folder of a job's checkpoints.
func GetCheckpointDir(jobID string) string { return filepath.Join(GetJobDir(jobID), "checkpoints") }

// GetCheckpointPath is the file of a checkpoint.
func GetCheckpointPath(jobID, checkpointID string) string {
	return filepath.Join(GetCheckpointDir(jobID), filename.Of(checkpointID)+".json")
}

// DefaultGetRunDir is the folder of a run.
func DefaultGetRunDir(jobID, runID string) string {
	return filepath.Join(GetJobDir(jobID), "runs", filename.Of(runID))
}

// DefaultStoreCheckpoint stores a checkpoint of the job that it names; one of its id that is
// there is replaced.
func DefaultStoreCheckpoint(ctx context.Context, st *tally.Store, c Checkpoint) error {
	_, err := handleOf(st, c.JobID).SaveCheckpoint(ctx, c)
	return err
}

// DefaultRetrieveCheckpoint returns a checkpoint. If there is none the error is "checkpoint
// not found: <id>" and matches tally.ErrNotFound.
func DefaultRetrieveCheckpoint(ctx context.Context, st *tally.Store, jobID, checkpointID string) (Checkpoint, error) {
	return handleOf(st, jobID).Checkpoint(ctx, checkpointID)
}

// GetCheckpointsByJobID returns the checkpoints of a job by their steps. What is invalid is
// left out.
func GetCheckpointsByJobID(ctx context.Context, st *tally.Store, jobID string) ([]Checkpoint, error) {
	return handleOf(st, jobID).Checkpoints(ctx)
}

// DefaultStoreEvent stores an event of the job and the run that it names. Two of one time,
// step and type are both kept.
func DefaultStoreEvent(ctx context.Context, st *tally.Store, e Event) error {
	_, err := handleOf(st, e.JobID).Record(ctx, e)
	return err
}

// GetEventsByRun lists the events of a run by their steps, without reading them.
func GetEventsByRun(ctx context.Context, st *tally.Store, jobID, runID string) ([]EventMeta, error) {
	return handleOf(st, jobID).EventList(ctx, runID)
}

// GetEventContents returns the events of a run by their time, up to a step if one is given.
func GetEventContents(ctx context.Context, st *tally.Store, jobID, runID string, maxStepNumber ...int64) ([]Event, error) {
	upto := AllSteps
	if len(maxStepNumber) > 0 {
		upto = max(maxStepNumber[0], 0)
	}
	return handleOf(st, jobID).Events(ctx, runID, upto)
}

// StoreRunSetting stores what a run is started with: see [Handle.SaveSetting]. With files, it
// is also written to the file run-setting.json of the folder that getRunDir says, with its
// secrets; of [FileOnly] files there alone. Both may be nil; the folder is then that of
// DefaultGetRunDir.
func StoreRunSetting(ctx context.Context, st *tally.Store, s RunSetting, files FileSystem, getRunDir func(jobID, runID string) string) error {
	raw, err := s.Raw()
	if err != nil {
		return err
	}
	return storeSetting(ctx, st, raw, files, getRunDir)
}

// GetAllRuns returns the settings of all runs, those that changed last first: see [Runs].
func GetAllRuns(ctx context.Context, st *tally.Store) ([]RunSetting, error) { return Runs(ctx, st) }

// CreateDefaultFileSystem returns the operating system's files.
func CreateDefaultFileSystem() FileSystem { return osFiles{} }
