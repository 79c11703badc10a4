#include "tools/jobs/worker_group.h"

#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/coordinator_epoch.h"
#include "ops/custom/loaded_libraries.h"
#include "platform/byte_quantity.h"
#include "platform/file_system.h"
#include "platform/log.h"
#include "platform/process.h"
#include "platform/status_macros.h"
#include "tensor/device_id.h"
#include "tensor/lookup/device_lookup.h"
#include "tools/console/exit_code.h"
#include "tools/console/version.h"

namespace weft {
namespace {

absl::StatusOr<std::unique_ptr<WorkerCluster>> StartProcesses(const ClusterSpec& cluster,
                                                              const std::vector<int>& order,
                                                              const LossDetection& detection,
                                                              const std::string& token,
                                                              const std::string& transport) {
  LocalClusterOptions options;
  options.detection = detection;
  options.token = token;
  WEFT_ASSIGN_OR_RETURN(std::string executable, CurrentExecutable());
  options.command = {std::move(executable), "worker"};
  bool isolates = false;
  for (const OpLibrary& library : LoadedOpLibraries()) {
    options.command.insert(options.command.end(), {"--op_library", library.path});
    if (!library.is_isolated || isolates) continue;
    isolates = true;  // all are, or none
    options.command.insert(
        options.command.end(),
        {"--isolate-ops", "--op-timeout", absl::StrCat(absl::ToDoubleSeconds(library.op_timeout))});
  }
  options.command.insert(options.command.end(),
                         {"--log-level", LogLevelNames()[static_cast<size_t>(CurrentLogLevel())]});
  if (!transport.empty()) {
    options.command.insert(options.command.end(), {"--transport", transport});
  }
  options.workers = static_cast<int>(order.size());
  for (const int worker : order) {
    const WorkerSpec& spec = cluster.workers[static_cast<size_t>(worker)];
    options.devices.push_back(DeviceName(spec.device, spec.device_index));
  }
  return StartLocalCluster(RealProcessLauncher(), options);
}

absl::StatusOr<std::unique_ptr<WorkerCluster>> Connect(
    const JobFlags& flags, const ClusterSpec& cluster, const std::vector<int>& order,
    const LossDetection& detection, absl::Duration attended_patience, const NetworkKeys& network) {
  RemoteClusterOptions options;
  options.detection = detection;
  options.attended_patience = attended_patience;
  options.insecure_network = flags.insecure_network();
  options.token = network.token;
  options.keys = network.keys;
  for (const int worker : order) {
    const WorkerSpec& entry = cluster.workers[worker];
    if (entry.address.empty()) {
      return WithExitCode(
          absl::InvalidArgumentError("the cluster file gives worker '" + entry.name +
                                     "' no address: start graph_runner worker "
                                     "--listen ADDRESS there and write it down"),
          ExitCode::kPlan);
    }
    options.addresses.push_back(entry.address);
  }
  return ConnectToCluster(options);
}

// A peer that refuses is no fault of the cluster file.
absl::Status NotConnected(const absl::Status& status) {
  const bool is_refused = absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
  return WithExitCode(status, is_refused ? ExitCode::kRefused : ExitCode::kPlan);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerGroup>> WorkerGroup::Launch(
    const JobFlags& flags, const ClusterSpec& cluster, const std::vector<int>& order,
    Console& console, const WorkerGroupOptions& options) {
  std::unique_ptr<WorkerGroup> group(new WorkerGroup());
  group->options_ = options;
  group->connects_ = flags.connects();
  if (flags.connects() || options.may_be_joined) {
    WEFT_ASSIGN_OR_RETURN(
        group->network_,
        ReadNetworkKeys({flags.keys(), flags.token_file(), flags.insecure_network()}, console));
    group->insecure_network_ = flags.insecure_network();
  }
  std::vector<WorkerClient*> clients;
  if (flags.starts_processes() || flags.connects()) {
    const LoggedPhase phase(absl::StrCat("connect to ", order.size(), " workers"));
    *console.err << (flags.connects() ? "waiting for " : "starting ") << order.size()
                 << " worker processes, at most 60 s\n"
                 << std::flush;
    const std::string token = options.may_be_joined ? group->network_.token : "";
    auto processes = flags.connects() ? Connect(flags, cluster, order, options.detection,
                                                options.attended_patience, group->network_)
                                      : StartProcesses(cluster, order, options.detection, token,
                                                       flags.transport());
    if (!processes.ok()) return NotConnected(processes.status());
    group->processes_ = *std::move(processes);
    clients = group->processes_->clients();
  } else {
    std::vector<Device*> devices;
    for (const int worker : order) {
      const WorkerSpec& spec = cluster.workers[static_cast<size_t>(worker)];
      WEFT_ASSIGN_OR_RETURN(Device* const device, FindDevice(spec.device, spec.device_index));
      devices.push_back(device);
    }
    group->threads_ =
        std::make_unique<InProcessCluster>(devices, NewDataSetFactory(RealFileSystem()), kVersion);
    clients = group->threads_->clients();
  }
  group->coordinator_ = std::make_unique<Coordinator>(std::move(clients));
  return group;
}

std::vector<std::string> WorkerGroup::addresses() const {
  return processes_ != nullptr ? processes_->addresses() : std::vector<std::string>();
}

absl::StatusOr<std::unique_ptr<WorkerGroup>> WorkerGroup::Start(
    const JobFlags& flags, const JobSpec& spec, const PreparedJob& job, Console& console,
    const PreparedJob* evaluation, const WorkerGroupOptions& options) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<WorkerGroup> group,
                        Launch(flags, spec.cluster, job.plan.workers, console, options));
  WEFT_RETURN_IF_ERROR(group->Begin(spec, job, console, evaluation, {}));
  return group;
}

absl::Status WorkerGroup::Begin(const JobSpec& spec, const PreparedJob& job, Console& console,
                                const PreparedJob* evaluation, const JobStart& start) {
  const absl::Status started =
      StartJob(*coordinator_, job, spec, kVersion, addresses(), evaluation, start);
  if (!started.ok()) return Explain(started);
  for (const WorkerMemory& memory : coordinator_->memory()) {
    *console.err << "memory " << memory.worker << " needs " << DescribeMemory(memory.requirement)
                 << "; may have " << ByteQuantity(memory.limit.bytes) << " ("
                 << Printable(memory.limit.source) << ")\n";
  }
  if (const std::string& note = coordinator_->card_note(); !note.empty()) {
    *console.err << Printable(note) << "\n";
  }
  *console.err << std::flush;
  return absl::OkStatus();
}

absl::Status WorkerGroup::CheckNotDeposed() {
  if (processes_ == nullptr) return absl::OkStatus();
  for (WorkerClient* const client : processes_->clients()) {
    const absl::Status answer = Explain(client->Ask(StepProgressRequest{}).status());
    if (IsDeposed(answer)) return answer;
  }
  return absl::OkStatus();
}

absl::Status WorkerGroup::AddFurther(const ClusterSpec& cluster, const std::string& listen,
                                     Console& console) {
  if (further_ != nullptr || (cluster.spares.empty() && listen.empty())) return absl::OkStatus();
  FurtherWorkersOptions further;
  further.members = processes_->addresses();
  for (const WorkerSpec& spare : cluster.spares) {
    further.spares.push_back({spare.address, DeviceName(spare.device, spare.device_index)});
  }
  further.listen = listen;
  further.is_local = !connects_;
  further.insecure_network = insecure_network_;
  further.token = network_.token;
  if (connects_) further.keys = network_.keys;  // those that we start have none
  further.version = kVersion;
  further.detection = options_.detection;
  if (!cluster.spares.empty()) {
    *console.err << "waiting for " << cluster.spares.size() << " spares, at most 60 s\n"
                 << std::flush;
  }
  auto started = FurtherWorkers::Start(further);
  if (!started.ok()) return NotConnected(started.status());
  further_ = *std::move(started);
  if (!listen.empty()) {
    *console.err << "workers may join at " << Printable(further_->address()) << "\n" << std::flush;
  }
  return absl::OkStatus();
}

JobWorkers* WorkerGroup::workers() {
  if (processes_ == nullptr) return nullptr;
  if (!workers_.has_value()) workers_.emplace(*processes_, further_.get());
  return &*workers_;
}

absl::Status WorkerGroup::Explain(const absl::Status& error) {
  return processes_ == nullptr || error.ok() ? error : processes_->Explain(error);
}

}  // namespace weft
