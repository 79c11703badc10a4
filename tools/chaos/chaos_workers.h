// ChaosWorkers: workers that chaos starts itself, each behind a proxy.
#ifndef WEFT_TOOLS_CHAOS_CHAOS_WORKERS_H_
#define WEFT_TOOLS_CHAOS_CHAOS_WORKERS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "platform/process.h"
#include "tools/chaos/socket_proxy.h"

namespace weft {

// Worker K listens at FOLDER/K.worker, and the job finds it at FOLDER/K, where its proxy listens.
// All that others say to it passes there: the coordinator's calls, and the data of peers. The
// cluster file and the token are in the folder. The destructor kills the workers. One thread.
class ChaosWorkers {
 public:
  // Starts them and waits until they listen. The folder is a new one.
  static absl::StatusOr<std::unique_ptr<ChaosWorkers>> Start(ProcessLauncher& launcher,
                                                             const std::string& program,
                                                             const std::string& folder, int count);

  int count() const { return static_cast<int>(workers_.size()); }
  // Flags by which `train` finds them.
  std::vector<std::string> flags() const;
  // Those that run, by number.
  std::vector<int> living() const;
  Process& process(int worker) const { return *workers_[static_cast<size_t>(worker)].process; }
  SocketProxy& proxy(int worker) const { return *workers_[static_cast<size_t>(worker)].proxy; }
  // Of all processes that were started and may not have been waited for.
  std::vector<int64_t> ids() const;
  // A worker that did not end on purpose is started anew, once it has been away for `away`.
  absl::Status Revive(absl::Duration away);
  // Starts all anew that have ended, waits until they listen, and lets everything pass.
  absl::Status ReviveAll();
  // Tells all to end (SIGTERM), and names those that have not within five seconds.
  std::vector<std::string> End();

 private:
  struct ChaosWorker {
    std::unique_ptr<Process> process;
    std::unique_ptr<SocketProxy> proxy;
    absl::Time ended_at = absl::InfiniteFuture();
  };

  ChaosWorkers(ProcessLauncher& launcher, std::string program, std::string folder)
      : launcher_(launcher), program_(std::move(program)), folder_(std::move(folder)) {}
  std::string PathOf(int worker) const;  // of its own socket
  absl::Status StartProcess(int worker);
  absl::Status AwaitSockets() const;

  ProcessLauncher& launcher_;
  const std::string program_;
  const std::string folder_;
  std::vector<ChaosWorker> workers_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_CHAOS_WORKERS_H_
