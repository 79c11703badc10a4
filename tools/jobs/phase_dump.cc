#include "tools/jobs/phase_dump.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "executor/lowering/lowering.h"
#include "executor/program/planned_memory.h"
#include "onnx_import/graph_wire.h"
#include "placement/files/plan_file.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "tools/console/exit_code.h"
#include "training/graph/training_graph.h"
#include "training/job/partition_folder.h"
#include "training/job/rank_device.h"

namespace weft {
namespace {

constexpr char kAll[] = "all";
// The passes that give a graph the shapes of the data (BindInputs).
constexpr char kInferPass[] = "infer_shapes";
constexpr char kFoldPass[] = "fold_constants";

const std::vector<std::string>& Phases() {
  static const auto* const phases = new std::vector<std::string>{
      "import", "simplify", "expand", "differentiate", "plan", "partition", "lowering"};
  return *phases;
}

std::string NameOf(StepPhase phase) { return Phases()[static_cast<size_t>(phase)]; }

// "04-differentiate".
std::string FileNameOf(StepPhase phase) {
  return absl::StrFormat("%02d-%s", static_cast<int>(phase) + 1, NameOf(phase));
}

// The first phase that has something of this name.
std::map<std::string, StepPhase> PhasesByName() {
  std::map<std::string, StepPhase> phases = {{kInferPass, StepPhase::kSimplify},
                                             {kFoldPass, StepPhase::kSimplify}};
  for (size_t i = 0; i < Phases().size(); ++i) phases[Phases()[i]] = static_cast<StepPhase>(i);
  StepPhase phase = StepPhase::kExpand;
  for (const std::string& pass : TrainingGraphPasses()) {
    phases[pass] = phase;
    if (pass == LastExpansionPass()) phase = StepPhase::kDifferentiate;
  }
  for (const std::string& pass : LoweringPassNames()) phases[pass] = StepPhase::kLowering;
  return phases;
}

absl::Status Unknown(const std::string& flag, const std::string& name,
                     const std::vector<std::string>& names) {
  return UsageError(absl::StrCat(flag, " ", name, ": there is no such name",
                                 DidYouMean(name, names), "; there are ",
                                 absl::StrJoin(names, ", ")));
}

std::string CountsOf(const Graph& graph) {
  return absl::StrCat(graph.num_nodes(), " nodes, ", graph.variables().size(), " variables");
}

// "train/16, train/8 for 2 workers".
std::string TextOf(const StoredPrograms& programs) {
  const auto name = [](std::string* text, const JobProgram& program) { *text += program.name; };
  const size_t ranks = programs.programs.empty() ? 0 : programs.programs.front().partitions.size();
  return absl::StrCat(absl::StrJoin(programs.programs, ", ", name), " for ", ranks,
                      ranks == 1 ? " worker" : " workers");
}

}  // namespace

std::vector<std::string> PhaseDump::PhaseNames() { return Phases(); }

std::vector<std::string> PhaseDump::PassNames() {
  std::vector<std::string> names = {kInferPass, kFoldPass};
  for (const auto& passes : {TrainingGraphPasses(), LoweringPassNames()}) {
    names.insert(names.end(), passes.begin(), passes.end());
  }
  return names;
}

absl::StatusOr<PhaseDump> PhaseDump::Create(FileSystem& files, DumpRequest request) {
  PhaseDump dump(files, std::move(request));
  WEFT_RETURN_IF_ERROR(dump.Check());
  return dump;
}

absl::Status PhaseDump::Check() {
  const std::map<std::string, StepPhase> phases = PhasesByName();
  if (!request_.until.empty()) {
    const auto phase = std::find(Phases().begin(), Phases().end(), request_.until);
    if (phase == Phases().end()) return Unknown("--until", request_.until, Phases());
    last_ = static_cast<StepPhase>(phase - Phases().begin());
  }
  if (!request_.after.empty() && request_.folder.empty()) {
    return UsageError("--dump-after needs a folder to write to: --dump DIR");
  }
  if (request_.until.empty() && !request_.after.empty()) last_ = StepPhase::kImport;
  for (const std::string& name : request_.after) {
    const auto phase = phases.find(name);
    if (name != kAll && phase == phases.end()) {
      std::vector<std::string> names = PhaseNames();
      for (const std::string& pass : PassNames()) names.push_back(pass);
      names.push_back(kAll);
      return Unknown("--dump-after", name, names);
    }
    const StepPhase needed = name == kAll ? StepPhase::kLowering : phase->second;
    if (request_.until.empty()) {
      last_ = std::max(last_, needed);
    } else if (name != kAll && needed > last_) {
      return UsageError(
          absl::StrCat("--dump-after ", name, " comes after --until ", request_.until));
    }
  }
  if (request_.after.empty() && !request_.folder.empty()) request_.after = {NameOf(last_)};
  return absl::OkStatus();
}

bool PhaseDump::Wants(std::string_view name) const {
  return std::any_of(request_.after.begin(), request_.after.end(),
                     [name](const std::string& other) { return other == name || other == kAll; });
}

bool PhaseDump::Needs(StepPhase phase) const {
  const bool is_asked = !request_.until.empty() || !request_.folder.empty();
  return is_asked && phase <= last_;
}

absl::Status PhaseDump::CheckWithoutData() const {
  for (const std::string& name : request_.after) {
    if (name != kInferPass && name != kFoldPass) continue;
    return UsageError(absl::StrCat("--dump-after ", name, ": ", name,
                                   " works with the shapes of the data; give --data, or "
                                   "--dump-after import for the graph as it is"));
  }
  return absl::OkStatus();
}

std::vector<std::string> PhaseDump::UnseenPasses() const {
  std::vector<std::string> unseen;
  for (const std::string& name : request_.after) {
    const bool is_phase = std::find(Phases().begin(), Phases().end(), name) != Phases().end();
    if (name != kAll && !is_phase && !seen_.contains(name)) unseen.push_back(name);
  }
  return unseen;
}

std::string PhaseDump::Summary() const {
  if (request_.folder.empty()) return "";
  const std::vector<std::string> unseen = UnseenPasses();
  return absl::StrCat(written_, written_ == 1 ? " file" : " files", " written to ", request_.folder,
                      unseen.empty() ? ""
                                     : absl::StrCat("; none for ", absl::StrJoin(unseen, ", "),
                                                    ", which changed nothing or did not run here"));
}

absl::Status PhaseDump::Write(const std::string& name, std::string_view bytes) {
  const std::string path = absl::StrCat(request_.folder, "/", name);
  const absl::Status made = files_->CreateDirectories(path.substr(0, path.rfind('/')));
  if (!made.ok()) return WithExitCode(made, ExitCode::kDisk);
  WEFT_RETURN_IF_ERROR(WithExitCode(files_->WriteFileAtomically(path, bytes), ExitCode::kDisk));
  ++written_;
  return absl::OkStatus();
}

absl::Status PhaseDump::WriteGraph(const std::string& name, const Graph& graph) {
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, GraphToOnnx(graph, {.weights = false}));
  return Write(absl::StrCat(name, ".onnx"), bytes);
}

absl::Status PhaseDump::End(StepPhase phase, const std::string& what) {
  current_ = static_cast<StepPhase>(static_cast<int>(phase) + 1);
  passes_ = 0;
  if (request_.until.empty() || phase < last_) return absl::OkStatus();
  has_ended_ = true;
  end_ = absl::StrCat("ended after ", NameOf(phase), ": ", what);
  return absl::CancelledError(end_);
}

GraphObserver PhaseDump::observer() {
  return [this](std::string_view pass, const Graph& graph) { return SeePass(pass, graph); };
}

absl::Status PhaseDump::SeePass(std::string_view pass, const Graph& graph) {
  ++passes_;
  seen_.emplace(pass);
  if (Wants(pass)) {
    WEFT_RETURN_IF_ERROR(WriteGraph(
        absl::StrFormat("%s/%02d-%s", FileNameOf(current_), passes_, std::string(pass)), graph));
  }
  const bool ends_expansion = pass == LastExpansionPass();
  return ends_expansion ? Finish(StepPhase::kExpand, graph) : absl::OkStatus();
}

absl::Status PhaseDump::Finish(StepPhase phase, const Graph& graph) {
  if (Wants(NameOf(phase))) WEFT_RETURN_IF_ERROR(WriteGraph(FileNameOf(phase), graph));
  return End(phase, CountsOf(graph));
}

absl::Status PhaseDump::FinishPlan(const Plan& plan) {
  if (Wants(NameOf(StepPhase::kPlan))) {
    WEFT_RETURN_IF_ERROR(
        Write(absl::StrCat(FileNameOf(StepPhase::kPlan), ".yaml"), PlanToYaml(plan)));
  }
  return End(StepPhase::kPlan, plan.mesh.ToString());
}

absl::Status PhaseDump::FinishPartition(const StoredPrograms& programs) {
  if (Wants(NameOf(StepPhase::kPartition))) {
    const auto written = WritePartitionFolder(
        *files_, absl::StrCat(request_.folder, "/", FileNameOf(StepPhase::kPartition)), programs);
    if (!written.ok()) return WithExitCode(written.status(), ExitCode::kDisk);
    written_ += *written;
  }
  return End(StepPhase::kPartition, TextOf(programs));
}

absl::Status PhaseDump::LowerRank(const Partition& partition, Device& device,
                                  const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> texts;  // by pass, in order
  const LoweringObserver observe = [&texts](std::string_view pass, std::string_view text) {
    texts.emplace_back(pass, text);
  };
  WEFT_RETURN_IF_ERROR(
      PlanProgram(partition, device, std::numeric_limits<int64_t>::max(), &observe).status());
  for (size_t i = 0; i < texts.size(); ++i) {
    seen_.insert(texts[i].first);
    const bool is_last = i + 1 == texts.size();
    const bool wanted = Wants(texts[i].first) || (is_last && Wants(NameOf(StepPhase::kLowering)));
    if (!wanted) continue;
    WEFT_RETURN_IF_ERROR(
        Write(absl::StrFormat("%s/%02d-%s.txt", folder, static_cast<int>(i) + 1, texts[i].first),
              texts[i].second));
  }
  return absl::OkStatus();
}

absl::Status PhaseDump::Lower(const StoredPrograms& programs, const ClusterSpec& cluster) {
  if (!Needs(StepPhase::kLowering)) return absl::OkStatus();
  for (const JobProgram& program : programs.programs) {
    for (const Partition& partition : program.partitions) {
      const auto device = DeviceOfRank(cluster, programs.plan, partition.rank);
      if (!device.ok()) return WithExitCode(device.status(), ExitCode::kPlan);
      const std::string folder = absl::StrCat(FileNameOf(StepPhase::kLowering), "/",
                                              absl::StrReplaceAll(program.name, {{"/", "-"}}),
                                              "/rank-", partition.rank.value);
      WEFT_RETURN_IF_ERROR(
          Annotate(LowerRank(partition, **device, folder),
                   absl::StrCat("lowering ", program.name, " of rank ", partition.rank.value)));
    }
  }
  return End(StepPhase::kLowering, TextOf(programs));
}

}  // namespace weft
