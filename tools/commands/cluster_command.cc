#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/keys/cluster_keys.h"
#include "graph/cluster_spec.h"
#include "placement/files/plan_file.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "tensor/device_id.h"
#include "tools/commands/command.h"
#include "tools/commands/command_json.h"
#include "tools/flags/options.h"

namespace weft {
namespace {

class ClusterCommand final : public Command {
 public:
  std::string name() const override { return "cluster"; }
  std::string summary() const override {
    return "Makes the keys by which the machines of a cluster know each other; shows its workers";
  }
  std::string usage() const override {
    return "keys --out DIR --hosts a,b,c | show --cluster FILE.yaml";
  }
  std::vector<std::string> examples() const override {
    return {"graph_runner cluster keys --out keys --hosts a,b,c",
            "graph_runner cluster keys --out keys --hosts a=10.0.0.7,b=10.0.0.8",
            "graph_runner cluster show --cluster cluster.yaml"};
  }
  bool reads_models() const override { return false; }

  void AddOptions(CLI::App& app) override {
    app.add_option("ACTION", action_,
                   "keys: make or renew the keys of hosts. show: who is in a cluster file, and in "
                   "which role")
        ->type_name("ACTION")
        ->required();
    app.add_option("--out", folder_,
                   "folder for the keys, made if it is missing; its folder authority signs, and "
                   "stays with you")
        ->type_name("DIR");
    app.add_option("--hosts", hosts_,
                   "names or addresses as cluster files have them; more addresses of a host follow "
                   "after '=', joined by '+'")
        ->type_name("a,b=10.0.0.8");
    app.add_option("--days", days_, "how long certificates are valid (default 365)")
        ->type_name("N")
        ->check(AtLeastOne);
    app.add_option("--cluster", cluster_file_, "the cluster file that show reads")
        ->type_name("FILE.yaml");
    AddOutputFormat(app, format_);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    if (action_ == "show") return Show(console);
    if (action_ != "keys") {
      return UsageError(
          absl::StrCat("'", action_, "' is no action", DidYouMean(action_, {"keys", "show"})));
    }
    if (folder_.empty() || hosts_.empty()) {
      return UsageError(absl::StrCat(folder_.empty() ? "--out" : "--hosts", " is required"));
    }
    ClusterKeysOptions options;
    options.folder = folder_;
    options.days = days_;
    options.now = absl::Now();
    auto hosts = ParseHosts(hosts_);
    if (!hosts.ok()) {
      return UsageError(absl::StrCat("--hosts: ", std::string(hosts.status().message())));
    }
    options.hosts = *std::move(hosts);
    const auto made = MakeClusterKeys(options);
    if (!made.ok()) {
      return WithExitCode(made.status(), absl::IsInvalidArgument(made.status()) ? ExitCode::kUsage
                                                                                : ExitCode::kDisk);
    }
    if (format_ == "json") {
      PrintJson(*made, console);
    } else {
      PrintText(*made, console);
    }
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<ExitCode> Show(Console& console) const {
    if (cluster_file_.empty()) return UsageError("show needs --cluster FILE.yaml");
    constexpr int64_t kLongestClusterFile = int64_t{16} << 20;  // as jobs read it
    const auto text = RealFileSystem().ReadFileUpTo(cluster_file_, kLongestClusterFile);
    if (!text.ok()) return WithExitCode(text.status(), ExitCode::kPlan);
    const auto cluster = ParseClusterFile(*text, cluster_file_);
    if (!cluster.ok()) return WithExitCode(cluster.status(), ExitCode::kPlan);
    if (format_ == "json") {
      Json rows = Json::array();
      for (const WorkerSpec& worker : cluster->workers) rows.push_back(Row(worker, "worker"));
      for (const WorkerSpec& spare : cluster->spares) rows.push_back(Row(spare, "spare"));
      const Json report = {{"workers", rows}};
      *console.out << report.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
      return ExitCode::kOk;
    }
    for (const WorkerSpec& worker : cluster->workers) PrintWorker(worker, "worker", console);
    for (const WorkerSpec& spare : cluster->spares) PrintWorker(spare, "spare", console);
    return ExitCode::kOk;
  }

  static Json Row(const WorkerSpec& worker, const std::string& role) {
    return {{"name", worker.name},
            {"role", role},
            {"host", worker.host},
            {"address", worker.address},
            {"device", DeviceName(worker.device, worker.device_index)}};
  }

  static void PrintWorker(const WorkerSpec& worker, const std::string& role, Console& console) {
    *console.out << role << "  " << Printable(worker.name) << " on " << Printable(worker.host)
                 << ", " << DeviceName(worker.device, worker.device_index)
                 << (worker.address.empty() ? "" : ", at ") << Printable(worker.address) << "\n";
  }

  void PrintText(const ClusterKeys& keys, Console& console) const {
    *console.out << (keys.is_new_authority ? "new authority " : "authority ") << Printable(folder_)
                 << "/authority, valid until " << DateText(keys.authority.not_after) << "\n";
    for (const ClusterKeys::Made& made : keys.made) {
      *console.out << Printable(made.folder) << "  " << RoleName(*made.certificate.role) << " for "
                   << Printable(made.certificate.HostsText()) << ", valid until "
                   << DateText(made.certificate.not_after) << "\n";
    }
    *console.out << "copy each folder to its machine (scp -r) and start graph_runner worker --keys "
                    "FOLDER there; train takes --keys "
                 << Printable(folder_) << "/coordinator\n";
  }

  static void PrintJson(const ClusterKeys& keys, Console& console) {
    Json rows = Json::array();
    for (const ClusterKeys::Made& made : keys.made) {
      rows.push_back({{"folder", made.folder},
                      {"role", std::string(RoleName(*made.certificate.role))},
                      {"names", made.certificate.names},
                      {"addresses", made.certificate.addresses},
                      {"valid_until", DateText(made.certificate.not_after)},
                      {"sha256", made.certificate.fingerprint}});
    }
    const Json report = {{"new_authority", keys.is_new_authority},
                         {"authority_sha256", keys.authority.fingerprint},
                         {"keys", rows}};
    *console.out << report.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  }

  std::string action_;
  std::string folder_;
  std::string hosts_;
  int64_t days_ = 365;
  std::string cluster_file_;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewClusterCommand() { return std::make_unique<ClusterCommand>(); }

}  // namespace weft
