#include <ostream>

#include "tensor/device_id.h"
#include "tools/commands/command.h"
#include "tools/doctor/machine_report.h"
#include "tools/doctor/machine_text.h"
#include "tools/flags/options.h"

namespace weft {
namespace {

class DoctorCommand final : public Command {
 public:
  std::string name() const override { return "doctor"; }
  std::string summary() const override {
    return "Says what this machine and this build have for a job, and what is wrong with them";
  }
  std::string usage() const override { return "[--need DEVICE] [--output text|json]"; }
  std::vector<std::string> examples() const override {
    return {"graph_runner doctor", "graph_runner doctor --need cuda:1",
            "graph_runner doctor --output json"};
  }
  bool reads_models() const override { return false; }

  void AddOptions(CLI::App& app) override {
    app.add_option("--need", needs_,
                   "end with exit code 1 unless this device can be used: cpu, cuda (any card) or "
                   "cuda:NUMBER. Can be given several times")
        ->type_name("DEVICE")
        ->allow_extra_args(false);
    app.add_option("--output", format_, "text, or json for programs")
        ->type_name("text|json")
        ->check(CLI::IsMember({"text", "json"}));
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    for (const std::string& need : needs_) {
      const absl::StatusOr<DeviceId> id = ParseDevice(need);
      if (!id.ok()) {
        return UsageError(absl::StrCat("--need: ", std::string(id.status().message())));
      }
    }
    const MachineReport report = ExamineMachine(SystemSources());
    *console.out << (format_ == "json" ? MachineJson(report) : MachineText(report));
    ExitCode code = ExitCode::kOk;
    for (const std::string& need : needs_) {
      if (report.Has(need)) continue;
      *console.err << "needed, and cannot be used: " << Printable(need)
                   << (report.has_cuda ? "" : " (this build has no CUDA)") << "\n";
      code = ExitCode::kInternal;
    }
    return code;
  }

 private:
  std::vector<std::string> needs_;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewDoctorCommand() { return std::make_unique<DoctorCommand>(); }

}  // namespace weft
