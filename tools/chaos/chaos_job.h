// ChaosJob: the job that a person gave, in the form in which chaos runs it.
#ifndef WEFT_TOOLS_CHAOS_CHAOS_JOB_H_
#define WEFT_TOOLS_CHAOS_CHAOS_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/process.h"

namespace weft {

// What is known of a `train` and its flags. A value.
struct ChaosJob {
  // A job file (tools/flags/job_file.h) with all flags of the job but those that name its workers,
  // its checkpoints and what it writes: chaos has its own.
  std::string text;
  int workers = 0;    // of --local; 0: the job runs in one process
  std::string local;  // the value of --local; ""
  int64_t steps = 0;  // of --steps; 0: of --epochs
  bool is_strict = false;
  // Seconds after which a worker that does not answer is lost (--detect).
  double silence = 4;
  std::string checkpoint_every;  // ""
  std::string device;            // of --device; ""
  // Why chaos cannot start the workers itself, behind proxies; "": it can.
  std::string why_no_proxies;
};

// Of what `train ... --print-config` prints. A usage error where chaos cannot run such a job: with
// workers of a cluster file, which it has not started, or a sweep.
absl::StatusOr<ChaosJob> ParseChaosJob(const std::string& printed);

// The same of the words of a command line: "train", and its flags. Runs `program` for it, which
// looks at no file but a job file; `log` takes its error text. An error of the flags is that of the
// program, with its exit code.
absl::StatusOr<ChaosJob> ReadChaosJob(ProcessLauncher& launcher, const std::string& program,
                                      const std::vector<std::string>& words,
                                      const std::string& log);

// The words as a shell takes them.
std::string ShellText(const std::vector<std::string>& words);

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_CHAOS_JOB_H_
