#include "tests/replaced_names.h"

#include <algorithm>
#include <cctype>
#include <unordered_map>

namespace weft::testing {
namespace {

bool IsIdentifierPart(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool Contains(const std::vector<std::string>& paths, const std::string& path) {
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& entry) {
    return entry.ends_with("/") ? path.starts_with(entry) : path == entry;
  });
}

// The names that hold for a path, by how they are looked for.
struct Names {
  std::unordered_map<std::string_view, const ReplacedName*> whole;
  std::vector<const ReplacedName*> prefixes;
  std::vector<const ReplacedName*> phrases;
};

Names NamesFor(const std::string& path, const std::vector<ReplacedName>& names) {
  Names result;
  for (const ReplacedName& name : names) {
    if (Contains(name.allowed_in, path)) continue;
    if (!name.only_in.empty() && !Contains(name.only_in, path)) continue;
    const bool is_identifier =
        std::all_of(name.name.begin(), name.name.end() - 1, IsIdentifierPart);
    const char last = name.name.back();
    if (is_identifier && (last == '*' || last == '^')) {
      result.prefixes.push_back(&name);
    } else if (is_identifier && IsIdentifierPart(last)) {
      result.whole.emplace(name.name, &name);
    } else {
      result.phrases.push_back(&name);
    }
  }
  return result;
}

bool BeginsWith(std::string_view identifier, const std::string& pattern) {
  const std::string_view prefix = std::string_view(pattern).substr(0, pattern.size() - 1);
  if (!identifier.starts_with(prefix)) return false;
  if (pattern.back() == '*') return true;
  return identifier.size() > prefix.size() &&
         std::isupper(static_cast<unsigned char>(identifier[prefix.size()]));
}

const ReplacedName* FindIdentifier(std::string_view identifier, const Names& names) {
  const auto whole = names.whole.find(identifier);
  if (whole != names.whole.end()) return whole->second;
  for (const ReplacedName* name : names.prefixes) {
    if (BeginsWith(identifier, name->name)) return name;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> FindReplacedNames(const std::string& path, std::string_view text,
                                           const std::vector<ReplacedName>& names) {
  const Names known = NamesFor(path, names);
  std::vector<std::string> found;
  int line = 1;
  const auto add = [&](std::string_view use, const ReplacedName& name) {
    found.push_back(path + ":" + std::to_string(line) + ": '" + std::string(use) + "' is called '" +
                    name.now + "' now");
  };
  for (size_t i = 0; i < text.size();) {
    for (const ReplacedName* phrase : known.phrases) {
      if (text.substr(i).starts_with(phrase->name)) add(phrase->name, *phrase);
    }
    if (text[i] == '\n') ++line;
    size_t end = i;
    while (end < text.size() && IsIdentifierPart(text[end])) ++end;
    if (end == i) {
      ++i;
      continue;
    }
    const std::string_view identifier = text.substr(i, end - i);
    if (const ReplacedName* name = FindIdentifier(identifier, known)) add(identifier, *name);
    i = end;
  }
  return found;
}

const std::vector<ReplacedName>& ReplacedNames() {
  static const auto* const names = new std::vector<ReplacedName>{
      // Reductions and collectives.
      {"reduction: ring", "reduction: unordered", {"placement/files/plan_file_test.cc"}},
      {"Reduction::kRing", "Reduction::kUnordered"},
      {"CollectiveKind::kRing", "CollectiveKind::kGatherOrScatter"},
      {"tree_ordered", "ordered_tree"},
      {"quickest", "auto"},
      // An epoch is a pass over the data.
      {"epoch", "job_id", {}, {"distributed/", "graph/"}},
      {"stale_epoch", "stale_job"},
      {"kStaleEpoch", "kStaleJob"},
      // Plans.
      {"planner", "plan_completion, or the search"},
      {"plan_play", "plan_simulation"},
      {"PlayPlan", "SimulatePlan"},
      {"wish", "hint"},
      {"wishes", "hints"},
      {"wished", "hinted"},
      {"WishOfBackward", "PreferredStage"},
      {"wish_expansion", "hint_expansion"},
      {"side_nodes", "off_path_nodes"},
      {"SideNodes", "OffPathNodes"},
      {"StepSums", "GradientReducer"},
      {"data_axis", "gradient_reduction"},
      {"OperandPlacement", "ShardSlice"},
      {"ShardPlacement", "ShardSlice"},
      // Costs and predictions.
      {"StageFigures", "StageCosts"},
      {"StepFigures", "StepCosts"},
      {"stage_figures", "stage_costs"},
      {"figures_", "stage_costs_"},
      {"published_figures", "published_specs"},
      {"Ledger", "RunHistory"},
      {"ledger",
       "run_history",
       {"tools/command_line/command_line.cc", "tests/cli_plan_search_test.cc"}},
      // Schedules are simulated, programs run.
      {"play", "run, simulate or execute"},
      {"plays", "runs, simulates or executes"},
      {"played", "run, simulated or executed"},
      {"playing", "running or simulating"},
      {"Play", "Run"},
      {"Play^", "Run..., Simulate..."},
      {"Plays", "Runs, Simulates"},
      {"Played^", "Run..., Simulated..."},
      {"schedule_player", "schedule_simulator"},
      {"SchedulePlay", "ScheduleSimulation"},
      {"numeric_player", "numeric_executor"},
      // Execution.
      {"MovableBuffers", "ExternalBuffers"},
      {"movable_buffers", "external_buffers"},
      {"Lend", "BorrowBatch"},
      {"WaitNote", "WaitInfo"},
      {"wait_note", "wait_info"},
      {"early_messages", "unexpected_messages"},
      {"early_bytes", "unexpected_bytes"},
      {"MemoryCertificate", "MemoryRequirement"},
      {"memory_certificate", "memory_requirement"},
      {"certificate",
       "memory requirement",
       {},
       {"distributed/", "executor/", "training/", "docs/"}},
      // Training.
      {"SpeedWatch", "StragglerDetector"},
      {"speed_watch", "straggler_detector"},
      {"StepTap", "ValueCapture"},
      {"step_tap", "value_capture"},
      {"tapped_step", "captured_step"},
      {"Tapper", "Capturer"},
      {"OwnAlgorithm", "ModelTrainingInfo"},
      {"own_algorithm", "model_training_info"},
      {"SearchUnlessTold", "DefaultToPlanSearch"},
      {"images/s", "samples/s"},
      // Bounds.
      {"kMost*", "kMax..."},
      {"kLeast*", "kMin..."},
      {"most_*", "max_..."},
      {"least_*", "min_..."},
      {"Most^", "Max..."},
      {"Least^", "Min..."},
  };
  return *names;
}

}  // namespace weft::testing
