#include "tests/house/replaced_names.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weft::testing {
namespace {

bool IsIdentifierPart(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool Contains(const std::vector<std::string>& paths, const std::string& path) {
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& entry) {
    return entry.ends_with("/") ? path.starts_with(entry) : path == entry;
  });
}

bool IsUpper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }

// The words of an identifier, in lower case: of "kRunLent" and "k_run_lent" k, run and lent.
std::vector<std::string> PartsOf(std::string_view identifier) {
  std::vector<std::string> parts;
  char before = '_';
  for (const char c : identifier) {
    if (c != '_') {
      if (before == '_' || (IsUpper(c) && !IsUpper(before))) parts.emplace_back();
      parts.back().push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
    before = c;
  }
  return parts;
}

// Where the comment or literal of C++ ends that begins at `i`; `i` if none begins there.
size_t EndOfCommentOrLiteral(std::string_view text, size_t i) {
  const auto after = [text](std::string_view close, size_t from) {
    const size_t at = text.find(close, from);
    return at == std::string_view::npos ? text.size() : at + close.size();
  };
  const std::string_view rest = text.substr(i);
  if (rest.starts_with("//")) return after("\n", i);
  if (rest.starts_with("/*")) return after("*/", i + 2);
  const char before = i == 0 ? ' ' : text[i - 1];
  if (rest[0] == '"' && before == 'R') {
    const size_t open = std::min(text.find('(', i), text.size());
    return after(")" + std::string(text.substr(i + 1, open - i - 1)) + "\"", open);
  }
  // After a digit, ' separates thousands.
  if (rest[0] != '"' && (rest[0] != '\'' || IsIdentifierPart(before))) return i;
  size_t end = i + 1;
  while (end < text.size() && text[end] != rest[0]) end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

// By character of a C++ source: whether it belongs to code.
std::vector<bool> CodeOf(std::string_view text) {
  std::vector<bool> is_code(text.size(), true);
  for (size_t i = 0; i < text.size();) {
    const size_t end = EndOfCommentOrLiteral(text, i);
    std::fill(is_code.begin() + static_cast<std::ptrdiff_t>(i),
              is_code.begin() + static_cast<std::ptrdiff_t>(end), false);
    i = std::max(end, i + 1);
  }
  return is_code;
}

// The names that hold for a path, by how they are looked for.
struct Names {
  std::unordered_map<std::string_view, const ReplacedName*> whole;
  std::unordered_map<std::string, const ReplacedName*> words;
  std::vector<const ReplacedName*> prefixes;
  std::vector<const ReplacedName*> phrases;
};

bool IsCode(const std::string& path) { return path.ends_with(".cc") || path.ends_with(".h"); }

Names NamesFor(const std::string& path, const std::vector<ReplacedName>& names) {
  Names result;
  for (const ReplacedName& name : names) {
    if (Contains(name.allowed_in, path)) continue;
    if (!name.only_in.empty() && !Contains(name.only_in, path)) continue;
    if (name.only_in_code && !IsCode(path)) continue;
    if (name.name.front() == '*') {
      result.words.emplace(name.name.substr(1, name.name.size() - 2), &name);
      continue;
    }
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
  return identifier.size() > prefix.size() && IsUpper(identifier[prefix.size()]);
}

const ReplacedName* FindIdentifier(std::string_view identifier, const Names& names) {
  const auto whole = names.whole.find(identifier);
  if (whole != names.whole.end()) return whole->second;
  for (const ReplacedName* name : names.prefixes) {
    if (BeginsWith(identifier, name->name)) return name;
  }
  for (const std::string& part : PartsOf(identifier)) {
    const auto word = names.words.find(part);
    if (word != names.words.end()) return word->second;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> FindReplacedNames(const std::string& path, std::string_view text,
                                           const std::vector<ReplacedName>& names) {
  const Names known = NamesFor(path, names);
  const std::vector<bool> is_code =
      IsCode(path) ? CodeOf(text) : std::vector<bool>(text.size(), false);
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
    const ReplacedName* const name = FindIdentifier(identifier, known);
    if (name != nullptr && (is_code[i] || !name->only_in_code)) add(identifier, *name);
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
      {"Ring reduction", "Unordered"},
      {"tree_ordered", "ordered_tree"},
      {"tree-ordered", "ordered-tree"},
      {"quickest", "auto"},
      // An epoch is a pass over the data, and in distributed/ the number of a coordinator.
      {"epoch", "job_id", {}, {"graph/"}},
      {"stale_epoch", "stale_job"},
      {"kStaleEpoch", "kStaleJob"},
      // Plans.
      {"planner", "plan_completion, or the search"},
      {"PlannerTest", "PlanCompletionTest"},
      {"plan_play", "plan_simulation"},
      {"PlayPlan", "SimulatePlan"},
      {"*wish*", "hint"},
      {"*wishes*", "hints"},
      {"*wished*", "hinted"},
      {"WishOfBackward", "PreferredStage"},
      {"wish_expansion", "hint_expansion"},
      {"side_nodes", "off_path_nodes"},
      {"SideNodes", "OffPathNodes"},
      {"beside the way", "off-path"},
      {"StepSums", "GradientReducer"},
      {"data_axis", "gradient_reduction"},
      {"OperandPlacement", "OperandSlice"},
      {"ShardPlacement", "ShardSlice"},
      {"InputPlacement", "InputSlice"},
      {"OutputPlacement", "OutputSlice"},
      {"input_placements*", "input_slices"},
      {"output_placements*", "output_slices"},
      // Costs and predictions.
      {"StageFigures", "StageCosts"},
      {"StepFigures", "StepCosts"},
      {"stage_figures", "stage_costs"},
      {"figures_", "stage_costs_"},
      {"published_figures", "published_specs"},
      {"Ledger", "RunHistory"},
      {"ledger",
       "run_history",
       {"tools/flags/renamed_flags.cc", "tests/cli/plan_search_test.cc",
        "tools/flags/job_file_test.cc"}},
      // Schedules are simulated, programs run.
      {"*play*", "run, simulate or execute"},
      {"*plays*", "runs, simulates or executes"},
      {"*played*", "run, simulated or executed"},
      {"*playing*", "running or simulating"},
      {"schedule_player", "schedule_simulator"},
      {"SchedulePlay", "ScheduleSimulation"},
      {"numeric_player", "numeric_executor"},
      // Execution.
      {"MovableBuffers", "ExternalBuffers"},
      {"movable_buffers", "external_buffers"},
      {"movable_", "external_buffers_"},
      {"*lend*", "BorrowBatch, borrow"},
      {"*lends*", "borrow, seen from the other side"},
      {"*lending*", "borrow, seen from the other side"},
      {"*lent*", "borrowed"},
      {"WaitNote", "WaitInfo"},
      {"wait_note", "wait_info"},
      {"early messages", "unexpected messages"},
      {"early_messages", "unexpected_messages"},
      {"early_bytes", "unexpected_bytes"},
      {"MemoryCertificate", "MemoryRequirement"},
      {"memory_certificate", "memory_requirement"},
      // X.509 has certificates, too.
      {"certificate",
       "memory requirement",
       {"distributed/keys/", "distributed/grpc/", "docs/security.md", "docs/attacks.md"},
       {"distributed/", "executor/", "training/", "docs/"}},
      // Training.
      {"SpeedWatch", "StragglerDetector"},
      {"speed_watch", "straggler_detector"},
      {"StepTap", "ValueCapture"},
      {"step_tap", "value_capture"},
      {"tapped_step", "captured_step"},
      {"*tapped*", "captured"},
      {"*tapper*", "capturer"},
      {"OwnAlgorithm", "ModelTrainingInfo"},
      {"own_algorithm", "model_training_info"},
      {"own algorithm", "training_info"},
      {"SearchUnlessTold", "DefaultToPlanSearch"},
      {"images/s", "samples/s"},
      // Names that say where something stands in a sentence, not what it is.
      {"there", "what is there: request, stored", {}, {}, true},
      {"of_rank", "what the rank has: rank_folder", {}, {}, true},
      {"of_model", "what the model has: channel_spec", {}, {}, true},
      // Bounds.
      {"kMost*", "kMax..."},
      {"kLeast*", "kMin..."},
      {"most_*", "max_..."},
      {"least_*", "min_..."},
      {"Most^", "Max..."},
      {"Least^", "Min..."},
      {"most", "max_..., by what it bounds", {}, {}, true},
      {"least", "min_..., by what it bounds", {}, {}, true},
      // Fields that comments went on naming.
      {"keep_empty", "keep_empty_outputs"},
      {"\"grad\" true", "is_gradient"},
  };
  return *names;
}

}  // namespace weft::testing
