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

// CreateInitialJob returns a job that has just begun: it is running and has no steps. maxSteps is optional. It stores
// nothing.
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

// StoreJob stores a job, and replaces any version: see [Handle.Save], and [Handle.Update] for concurrent changes.
func StoreJob(ctx context.Context, st *tally.Store, j Job) error {
	_, err := handleOf(st, j.ID).Save(ctx, j)
	return err
}

// RetrieveJob returns a job. If it was never stored, the error is tally.ErrNotFound; if it violates the schema,
// *events.InvalidError.
func RetrieveJob(ctx context.Context, st *tally.Store, jobID string) (Job, error) {
	return handleOf(st, jobID).Load(ctx)
}

// GetAllJobs returns all valid jobs, the last started first.
func GetAllJobs(ctx context.Context, st *tally.Store) ([]Job, error) { return Jobs(ctx, st, Query{}) }

// GetJobsDir returns the folder of all jobs, below the present working directory.
func GetJobsDir() string {
	dir, err := os.Getwd()
	if err != nil {
		dir = "." // "." works as well
	}
	return filepath.Join(dir, "perstack", "jobs")
}

// GetJobDir returns the folder of a job. It encodes an id that is not a valid name of a folder.
func GetJobDir(jobID string) string { return filepath.Join(GetJobsDir(), filename.Of(jobID)) }

// GetCheckpointDir returns the folder of a job's checkpoints.
func GetCheckpointDir(jobID string) string { return filepath.Join(GetJobDir(jobID), "checkpoints") }

// GetCheckpointPath returns the file of a checkpoint.
func GetCheckpointPath(jobID, checkpointID string) string {
	return filepath.Join(GetCheckpointDir(jobID), filename.Of(checkpointID)+".json")
}

// DefaultGetRunDir returns the folder of a run.
func DefaultGetRunDir(jobID, runID string) string {
	return filepath.Join(GetJobDir(jobID), "runs", filename.Of(runID))
}

// DefaultStoreCheckpoint stores a checkpoint of the job that it names. It replaces a checkpoint with the same id.
func DefaultStoreCheckpoint(ctx context.Context, st *tally.Store, c Checkpoint) error {
	_, err := handleOf(st, c.JobID).SaveCheckpoint(ctx, c)
	return err
}

// DefaultRetrieveCheckpoint returns a checkpoint. If it does not exist, the error is "checkpoint not found: <id>" and
// matches tally.ErrNotFound.
func DefaultRetrieveCheckpoint(ctx context.Context, st *tally.Store, jobID, checkpointID string) (Checkpoint, error) {
	return handleOf(st, jobID).Checkpoint(ctx, checkpointID)
}

// GetCheckpointsByJobID returns the valid checkpoints of a job, sorted by step.
func GetCheckpointsByJobID(ctx context.Context, st *tally.Store, jobID string) ([]Checkpoint, error) {
	return handleOf(st, jobID).Checkpoints(ctx)
}

// DefaultStoreEvent stores an event of the job and run that it names. Two events of the same time, step and type are
// both stored.
func DefaultStoreEvent(ctx context.Context, st *tally.Store, e Event) error {
	_, err := handleOf(st, e.JobID).Record(ctx, e)
	return err
}

// GetEventsByRun lists the events of a run by step, without reading them.
func GetEventsByRun(ctx context.Context, st *tally.Store, jobID, runID string) ([]EventMeta, error) {
	return handleOf(st, jobID).EventList(ctx, runID)
}

// GetEventContents returns the events of a run, sorted by time, up to a step if given.
func GetEventContents(ctx context.Context, st *tally.Store, jobID, runID string, maxStepNumber ...int64) ([]Event, error) {
	upto := AllSteps
	if len(maxStepNumber) > 0 {
		upto = max(maxStepNumber[0], 0)
	}
	return handleOf(st, jobID).Events(ctx, runID, upto)
}

// StoreRunSetting stores the setting with which a run starts: see [Handle.SaveSetting]. With files, it also writes
// run-setting.json, with the secrets, into the folder that getRunDir returns; with [FileOnly] files, it writes only
// there. Both may be nil; the default folder is that of DefaultGetRunDir.
func StoreRunSetting(ctx context.Context, st *tally.Store, s RunSetting, files FileSystem, getRunDir func(jobID, runID string) string) error {
	raw, err := s.Raw()
	if err != nil {
		return err
	}
	return storeSetting(ctx, st, raw, files, getRunDir)
}

// GetAllRuns returns the settings of all runs, the last changed first: see [Runs].
func GetAllRuns(ctx context.Context, st *tally.Store) ([]RunSetting, error) { return Runs(ctx, st) }

// CreateDefaultFileSystem returns the operating system's file system.
func CreateDefaultFileSystem() FileSystem { return osFiles{} }
