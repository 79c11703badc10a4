#include <algorithm>
#include <map>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "placement/cost/profile_file.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/console/quantity.h"
#include "tools/console/version.h"
#include "tools/flags/job_flags.h"
#include "tools/jobs/cluster_devices.h"
#include "tools/jobs/worker_group.h"
#include "training/calibration/calibration.h"
#include "training/job/rank_device.h"

namespace weft {
namespace {

class CalibrateCommand final : public Command {
 public:
  std::string name() const override { return "calibrate"; }
  std::string summary() const override {
    return "Measures workers, links and the nodes of a model, for predictions of plans";
  }
  std::string usage() const override {
    return "[MODEL.onnx --data NAME=FILE --labels FILE] [--local N] -o OUT.yaml";
  }
  std::vector<std::string> examples() const override {
    return {"graph_runner calibrate m.onnx --data x=x.npy --labels y.npy --local 2 -o profile.yaml",
            "graph_runner calibrate --device cuda -o profile.yaml",
            "graph_runner calibrate --cluster cluster.yaml -o profile.yaml"};
  }

  void AddOptions(CLI::App& app) override {
    flags_.AddModel(app);
    app.get_option("MODEL")->required(false);
    flags_.AddData(app, /*required=*/false);
    flags_.AddLoss(app);
    flags_.AddOptimizer(app);
    flags_.AddPlacement(app);
    app.add_option("-o,--out", output_,
                   "output profile; if the file exists, measurements of other models on this "
                   "cluster are kept")
        ->type_name("PROFILE.yaml")
        ->required();
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    const int64_t begin = RealClock().MonotonicNanos();
    WEFT_ASSIGN_OR_RETURN(const JobSpec spec, flags_.Job());
    WEFT_RETURN_IF_ERROR(CheckClusterDevices(spec.cluster));
    std::vector<PreparedJob> jobs;
    if (!flags_.model().empty()) {
      WEFT_ASSIGN_OR_RETURN(jobs, Jobs(spec));
    }
    std::vector<int> order;
    for (size_t i = 0; i < spec.cluster.workers.size(); ++i) order.push_back(static_cast<int>(i));
    WEFT_ASSIGN_OR_RETURN(const auto workers,
                          WorkerGroup::Launch(flags_, spec.cluster, order, console));
    CalibrationOptions options;
    for (const PreparedJob& job : jobs) options.jobs.push_back(&job);
    options.progress = [&console](const std::string& what) {
      *console.err << "measuring " << what << "\n" << std::flush;
    };
    std::vector<std::string> devices;
    for (const WorkerSpec& worker : spec.cluster.workers) devices.push_back(ExpectedDevice(worker));
    ProbeSession session(workers->coordinator(), workers->addresses(), kVersion, devices);
    auto profile = Calibrate(session, spec.cluster, options);
    if (!profile.ok()) return workers->Explain(profile.status());
    KeepEarlier(*profile, console);
    WEFT_RETURN_IF_ERROR(WithExitCode(
        RealFileSystem().WriteFileAtomically(output_, ProfileToYaml(*profile)), ExitCode::kDisk));
    const double seconds = 1e-9 * static_cast<double>(RealClock().MonotonicNanos() - begin);
    Report(*profile, seconds, console);
    return ExitCode::kOk;
  }

 private:
  // The plan that was given; without one, those that use all workers along one axis.
  absl::StatusOr<std::vector<PreparedJob>> Jobs(const JobSpec& spec) const {
    if (!flags_.has_data()) {
      return UsageError("a model's nodes are measured with samples: give --data and --labels");
    }
    WEFT_ASSIGN_OR_RETURN(TrainingSpec training, flags_.Training());
    WEFT_ASSIGN_OR_RETURN(const ImportedModel model, flags_.LoadModel());
    WEFT_RETURN_IF_ERROR(flags_.TakeLoss(model.graph, training.loss));
    WEFT_ASSIGN_OR_RETURN(const auto data, flags_.OpenData(/*shuffle=*/true));
    std::vector<PreparedJob> jobs;
    absl::Status refused;
    for (JobSpec candidate : Candidates(spec)) {
      // Nodes are measured, not what a cut batch makes of the model.
      candidate.batch_policy.allows_cuts = true;
      auto job = PrepareTraining(model.graph, training, candidate, data);
      if (job.ok()) {
        jobs.push_back(*std::move(job));
      } else if (refused.ok()) {
        refused = job.status();
      }
    }
    if (jobs.empty()) return WithExitCode(refused, ExitCode::kPlan);
    return jobs;
  }

  std::vector<JobSpec> Candidates(const JobSpec& spec) const {
    const int workers = static_cast<int>(spec.cluster.workers.size());
    if (flags_.has_plan() || workers == 1) return {spec};
    std::vector<JobSpec> candidates;
    const auto add = [&](Mesh mesh, int each, const std::string& schedule) {
      candidates.push_back(spec);
      Plan& plan = candidates.back().plan;
      plan.mesh = mesh;
      plan.micro_batches = each * workers;
      plan.schedule = schedule;
    };
    candidates.push_back(spec);
    candidates.back().plan.mesh.tensor = workers;
    // More micro-batches are smaller ones, and other shapes. In the caches a node finds what its
    // micro-batch left there: that depends on how many the schedule has in flight. What the batch
    // is too small for is refused.
    for (const int each : {1, 2, 4, 8}) {
      add({workers, 1, 1}, each, "gpipe");
      add({1, 1, workers}, each, "gpipe");
      if (each > 1) add({1, 1, workers}, each, "zero_bubble");
    }
    return candidates;
  }

  void KeepEarlier(ClusterProfile& profile, Console& console) const {
    const auto text = RealFileSystem().ReadFile(output_);
    if (!text.ok()) return;
    const auto earlier = ParseProfileFile(*text, output_);
    if (!earlier.ok()) return;
    for (const std::string& name : KeepOps(*earlier, profile)) {
      *console.err << "note: " << Printable(output_) << " had nodes of " << Printable(name)
                   << " that were measured on another card; they are left out\n";
    }
  }

  void Report(const ClusterProfile& profile, double seconds, Console& console) const {
    for (const DeviceProfile& device : profile.devices) {
      const RateCurve& products = device.contraction.at(DType::kFloat32);
      *console.out << absl::StrFormat(
          "%s: products at most %sFLOP/s on %d thread%s, %sB/s of memory, %.0f ns a node, "
          "%d nodes measured\n",
          Printable(device.name), Quantity(MaxRateOf(products)), device.threads,
          device.threads == 1 ? "" : "s", Quantity(device.elementwise.points.back().per_second),
          1e9 * device.node_seconds, static_cast<int>(device.ops.size()));
      if (device.copy_bytes_per_second > 0) ReportCard(device, console);
    }
    for (const auto& [hosts, link] : profile.links) {
      *console.out << absl::StrFormat(
          "%s: %.0f us, %sB/s; both ways %sB/s\n",
          hosts.first == hosts.second
              ? absl::StrCat("within host ", hosts.first)
              : absl::StrCat("host ", hosts.first, " to host ", hosts.second),
          1e6 * (link.latency_seconds + link.send_seconds + link.receive_seconds),
          Quantity(link.bytes_per_second), Quantity(link.exchange_bytes_per_second));
    }
    *console.out << absl::StrFormat("profile %s, in %.1f s\n", Printable(output_), seconds);
  }

  // What only devices with memory of their own have.
  static void ReportCard(const DeviceProfile& device, Console& console) {
    std::string text = absl::StrCat(
        "  ", device.card.empty() ? "a device with memory of its own" : Printable(device.card));
    if (!device.driver.empty()) absl::StrAppend(&text, ", driver ", Printable(device.driver));
    for (const auto& [dtype, curve] : device.contraction) {
      if (dtype == DType::kFloat32) continue;
      absl::StrAppend(&text, "; ", std::string(DTypeName(dtype)), " ", Quantity(MaxRateOf(curve)),
                      "FLOP/s");
    }
    *console.out << absl::StrFormat(
        "%s; copies %sB/s within it (read and written), %sB/s and %.0f us to and from the host\n",
        text, Quantity(device.copy_bytes_per_second), Quantity(device.host_bytes_per_second),
        1e6 * device.host_copy_seconds);
  }

  static double MaxRateOf(const RateCurve& curve) {
    double max_rate = 0;
    for (const RateCurve::Point& point : curve.points)
      max_rate = std::max(max_rate, point.per_second);
    return max_rate;
  }

  JobFlags flags_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> NewCalibrateCommand() { return std::make_unique<CalibrateCommand>(); }

}  // namespace weft
