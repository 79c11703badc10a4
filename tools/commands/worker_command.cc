#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "distributed/process/worker_process.h"
#include "platform/file_system.h"
#include "platform/process.h"
#include "platform/status_macros.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"
#include "tools/commands/command.h"
#include "tools/console/stop_signals.h"
#include "tools/console/version.h"
#include "tools/flags/network_keys.h"
#include "tools/flags/options.h"
#include "tools/flags/worker_roots.h"
#include "training/job/job.h"

namespace weft {
namespace {

class WorkerCommand final : public Command {
 public:
  std::string name() const override { return "worker"; }
  std::string summary() const override {
    return "Serves as a worker for jobs that are started elsewhere";
  }
  std::string usage() const override { return "--listen ADDRESS"; }
  std::vector<std::string> examples() const override {
    return {"graph_runner worker --listen unix:/run/user/1000/weft.0",
            "graph_runner worker --listen 127.0.0.1:4000 --join 127.0.0.1:5000",
            "graph_runner worker --listen 10.0.0.7:4000 --keys keys/a --data-root /data"};
  }

  void AddOptions(CLI::App& app) override {
    app.add_option("--listen", listen_, "address to listen on: unix:/path or host:port")
        ->type_name("ADDRESS")
        ->required();
    app.add_option("--join", join_,
                   "ask this job to be taken in: the address of its train --listen")
        ->type_name("ADDRESS");
    app.add_option("--device", device_,
                   "device to compute on: cpu, cuda or cuda:NUMBER (default cpu)")
        ->type_name("DEVICE");
    AddTransport(app, transport_)->group("messages");
    app.add_option("--keys", network_.keys,
                   "folder with the keys of this host (graph_runner cluster keys): needed for "
                   "addresses beyond this machine")
        ->type_name("DIR");
    app.add_flag("--insecure-network", network_.insecure_network,
                 "in a laboratory, do without keys: nothing is encrypted");
    app.add_option(
           "--token-file", network_.token_file,
           "file of mode 0600 with the token that jobs must have (default DIR/token of --keys, or "
           "~/.weft/token, created if it is missing)")
        ->type_name("FILE");
    roots_.AddTo(app);
    app.add_option("--keep-state", keep_state_,
                   "seconds to keep the state of a job whose coordinator is lost, for train "
                   "--resume (default 60; 0: not at all)")
        ->type_name("SECONDS")
        ->check(CLI::Validator(CLI::Range(0, 86400)).description(""))
        ->group("when others end");
    app.add_option("--ends-with-parent", parent_,
                   "end when this process, which started the worker, or its job ends")
        ->type_name("PID")
        ->check(AtLeastOne)
        ->group("when others end");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    if (parent_ > 0) WEFT_RETURN_IF_ERROR(DieWithParent(parent_));
    WorkerProcessOptions options;
    options.listen = listen_;
    options.join = join_;
    options.insecure_network = network_.insecure_network;
    options.ends_with_coordinator = parent_ > 0;
    options.keep_state = absl::Seconds(keep_state_);
    options.shares_memory = transport_ != kSocketTransport;
    options.version = kVersion;
    WEFT_ASSIGN_OR_RETURN(options.device, Device());
    const DeviceInfo& info = options.device->info();
    options.device_text = DescribeDevice(info.kind, info.index);
    options.open_input = [](FileSystem& files) { return NewDataSetFactory(files); };
    WEFT_ASSIGN_OR_RETURN(NetworkKeys network, ReadNetworkKeys(network_, console));
    options.token = std::move(network.token);
    options.keys = std::move(network.keys);
    WEFT_ASSIGN_OR_RETURN(WorkerRoots roots, roots_.Roots());
    if (roots.is_default && (!network_.keys.empty() || network_.insecure_network)) {
      *console.err << "note: jobs may read and write below the working folder, "
                   << Printable(roots.data.front())
                   << "; --data-root DIR and --checkpoint-root DIR name others\n";
    }
    options.data_roots = std::move(roots.data);
    options.checkpoint_roots = std::move(roots.checkpoints);
    if (parent_ == 0) {
      options.on_listening = [&console](const std::string& address) {
        *console.err << "listening on " << Printable(address) << "\n" << std::flush;
      };
    }
    // A worker that is told to end leaves its job first, and takes its socket with it.
    const StopSignals signals;
    options.stop = [&signals] { return signals.signal() != 0; };
    const absl::Status served = ServeWorker(options);
    if (absl::IsAborted(served)) return WithExitCode(served, ExitCode::kTryAgain);
    if (!join_.empty()) WEFT_RETURN_IF_ERROR(WithExitCode(served, JoinExitCode(served)));
    WEFT_RETURN_IF_ERROR(WithExitCode(served, ExitCode::kPlan));
    return ExitCode::kOk;
  }

 private:
  // Of a worker that may not join: refused, or one too many for now.
  static ExitCode JoinExitCode(const absl::Status& served) {
    const bool may_try_again = absl::IsResourceExhausted(served) || absl::IsUnavailable(served);
    return may_try_again ? ExitCode::kTryAgain : ExitCode::kRefused;
  }

  absl::StatusOr<weft::Device*> Device() const {
    const absl::StatusOr<DeviceId> id = ParseDevice(device_);
    if (!id.ok()) {
      return UsageError(absl::StrCat("--device: ", std::string(id.status().message())));
    }
    const auto device = FindDevice(id->kind, id->index);
    if (!device.ok()) return WithExitCode(device.status(), ExitCode::kPlan);
    return *device;
  }

  std::string listen_;
  std::string join_;
  std::string device_ = "cpu";
  std::string transport_;
  NetworkFlags network_;
  WorkerRootFlags roots_;
  int64_t keep_state_ = 60;  // seconds
  int64_t parent_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewWorkerCommand() { return std::make_unique<WorkerCommand>(); }

}  // namespace weft
