// A worker process, as `graph_runner worker --listen ADDRESS` runs it.
#ifndef WEFT_DISTRIBUTED_PROCESS_WORKER_PROCESS_H_
#define WEFT_DISTRIBUTED_PROCESS_WORKER_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/keys/key_ring.h"
#include "distributed/transport.h"
#include "distributed/worker.h"
#include "platform/file_system.h"
#include "tensor/device.h"

namespace weft {

// What ServeWorker needs: address, token, folders, device. Pointers are borrowed.
struct WorkerProcessOptions {
  std::string listen;             // "unix:/path" or "host:port"; port 0 = any free one
  bool insecure_network = false;  // --insecure-network: other addresses than loopback
  // --keys: mutual TLS on all but unix sockets; null: none.
  std::shared_ptr<KeyRing> keys = {};
  // End when the coordinator's lease breaks (workers that --local started); otherwise wait for the
  // next one.
  bool ends_with_coordinator = false;
  // How long the state of a job that can be resumed is kept when its coordinator is lost, for the
  // next run of it (--keep-state); other jobs are refused meanwhile. 0: not at all. Without effect
  // where the worker ends with its coordinator.
  absl::Duration keep_state = absl::ZeroDuration();
  // That every caller and peer must have (distributed/job_token.h); not empty.
  std::string token;
  // Data are read below these alone (--data-root), and checkpoints written below those
  // (--checkpoint-root); "/" is any folder.
  std::vector<std::string> data_roots;
  std::vector<std::string> checkpoint_roots;
  std::string version;
  Device* device = nullptr;  // borrowed
  std::string device_text;   // WorkerDevice::text
  // Messages to workers of the same machine and user that do so, too, go through memory that they
  // share (distributed/shared_memory), all others through sockets.
  bool shares_memory = true;
  // Makes the factory of input sources, which read through `files`.
  std::function<InputSourceFactory(FileSystem& files)> open_input;
  // Decorates the transport of each job, for tests that inject faults; null: it stays as it is.
  std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)> decorate_transport;
  // The coordinator of a running job, which is asked to take the worker in (train --listen); "" =
  // none: coordinators come by themselves. The worker then ends with that job.
  std::string join;
  // Asked five times a second; true ends the worker: at once where nobody attends it, else when its
  // job does without it, after 25 s at the latest. Null: only its calls do.
  std::function<bool()> stop;
  // Called once it listens, with the address (and the port that was found); may be null.
  std::function<void(const std::string& address)> on_listening;
};

// Serves jobs, one after the other, until it is told to end (Shutdown, `stop`, or the coordinator's
// loss if so asked). Errors: the address cannot be listened on (Unavailable, at once, naming it);
// InvalidArgument without a token; Aborted where it was stopped for so long that its job has given
// it up (stale_watch.h); where it asks to join, the errors of OfferWorker, and of Unavailable after
// a minute.
absl::Status ServeWorker(const WorkerProcessOptions& options);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_PROCESS_WORKER_PROCESS_H_
