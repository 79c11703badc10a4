#include "onnx_import/edit/untie.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/edit/use_groups.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"

namespace weft {
namespace {

constexpr char kAllTensors[] = "all";
constexpr char kNoTensors[] = "none";
constexpr char kWeightSuffix[] = "weight";

bool IsWord(const std::string& pattern) { return pattern == kAllTensors || pattern == kNoTensors; }

class Untier {
 public:
  Untier(const TensorUses& uses, TensorValues& values, UseGroups& groups, TieEvidence& evidence,
         const std::vector<std::string>& patterns, const std::vector<CopiedTensor>& copies,
         CopyBudget& budget, FileEdit& edit, TieReport& report)
      : uses_(uses),
        values_(values),
        groups_(groups),
        evidence_(evidence),
        patterns_(patterns),
        copies_(copies),
        budget_(budget),
        edit_(edit),
        report_(report),
        matched_(patterns.size()) {}

  absl::Status Run() {
    const bool has_word = std::any_of(patterns_.begin(), patterns_.end(), IsWord);
    if (has_word && patterns_.size() > 1) {
      return absl::InvalidArgumentError(
          "--untie all and --untie none go alone: give patterns of names, or one of them");
    }
    for (size_t i = 0; i < uses_.tensors().size(); ++i) {
      WEFT_RETURN_IF_ERROR(Consider(static_cast<int>(i)));
    }
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (matched_[i] || IsWord(patterns_[i]) || MeansCopy(patterns_[i])) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--untie ", Quoted(patterns_[i]),
                       " matches no tensor that several modules share; graph_runner inspect lists "
                       "what is shared"));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Consider(int index);
  bool MeansCopy(const std::string& pattern) const;
  // Whether the exporter calls the tensor by the names of several parameters, with Identity nodes:
  // a token, a scale that Clip reads, and others that are used as no operator's own.
  bool HasSeveralNames(const std::vector<TensorUse>& uses) const;
  // Whether exporters merge such tensors by their value alone.
  bool IsAccident(const FileTensor& tensor, const std::vector<UseGroup>& groups);
  // All groups but those of running statistics are one.
  std::vector<UseGroup> Joined(std::vector<UseGroup> groups) const;
  // Those of one parameter are one (TieEvidence::ParametersOf). Of a group of which nothing is
  // known, the values decide.
  std::vector<UseGroup> ByParameter(const FileTensor& tensor, const std::vector<UseGroup>& groups,
                                    const std::vector<int>& parameters);
  bool IsDemanded(const FileTensor& tensor, const std::vector<UseGroup>& groups);
  size_t KeeperOf(const FileTensor& tensor, const std::vector<UseGroup>& groups);
  absl::Status Untie(int index, const std::vector<UseGroup>& groups);
  // The node reads the name at this input from now on.
  absl::Status ReadInstead(const FileTensor& tensor, int node, int input, const std::string& name);
  // Counts names that are made for copies of a tensor.
  absl::Status TakeNames(const FileTensor& tensor, size_t bytes);
  std::string GiveOwnTensor(const FileTensor& tensor, const UseGroup& group, const TensorUse* owner,
                            const std::map<std::string, std::string>& taken);
  void Remove(const FileTensor& tensor);
  void ReportKept(const FileTensor& tensor, const std::vector<UseGroup>& groups);

  std::string NameFor(const FileTensor& tensor, const UseGroup& group, const TensorUse* owner);
  std::string Unique(const std::string& name);
  std::string ReaderText(const TensorUse& use) const;

  const TensorUses& uses_;
  TensorValues& values_;
  UseGroups& groups_;
  TieEvidence& evidence_;
  const std::vector<std::string>& patterns_;
  const std::vector<CopiedTensor>& copies_;
  CopyBudget& budget_;
  FileEdit& edit_;
  TieReport& report_;
  std::vector<bool> matched_;
  std::set<std::string> made_;
  std::map<std::string, int> numbers_;  // by the name that was asked for
  bool is_asked_ = false;               // of the tensor at hand
};

// Whether an edit can make these uses read another tensor: all but outputs of the graph and
// subgraphs that read the tensor by its own name.
bool CanMove(const FileTensor& tensor, const UseGroup& group) {
  return std::all_of(group.uses.begin(), group.uses.end(), [&](const TensorUse& use) {
    return use.node >= 0 || use.name != tensor.name;
  });
}

bool ReadsDirectly(const FileTensor& tensor, const UseGroup& group) {
  return std::any_of(group.uses.begin(), group.uses.end(),
                     [&](const TensorUse& use) { return use.name == tensor.name; });
}

// Whether these uses read a name, as outputs of the graph and subgraphs do, that somebody has: they
// read whatever tensor has it.
bool FollowsName(const UseGroup& group, const std::map<std::string, std::string>& taken) {
  return std::all_of(group.uses.begin(), group.uses.end(), [&](const TensorUse& use) {
    return use.node < 0 && taken.count(use.name) > 0;
  });
}

absl::Status Untier::Consider(int index) {
  const FileTensor& tensor = uses_.tensors()[static_cast<size_t>(index)];
  const std::vector<TensorUse>& uses = uses_.uses(index);
  const bool has_role = std::any_of(uses.begin(), uses.end(), [](const TensorUse& use) {
    return use.role != ParameterRole::kOther;
  });
  const bool is_shared = uses.size() > 1 && (has_role || HasSeveralNames(uses));
  if (!is_shared) return absl::OkStatus();
  std::vector<UseGroup> groups = evidence_.GroupsOf(index);
  if (groups.size() < 2) return absl::OkStatus();
  is_asked_ = IsDemanded(tensor, groups);
  const bool none = patterns_.size() == 1 && patterns_[0] == kNoTensors;
  const std::vector<int> parameters =
      is_asked_ || none ? std::vector<int>() : evidence_.ParametersOf(index);
  if (!parameters.empty()) {
    groups = ByParameter(tensor, groups, parameters);
    return groups.size() > 1 ? Untie(index, groups) : absl::OkStatus();
  }
  const bool untie = is_asked_ || (!none && IsAccident(tensor, groups));
  if (!untie) {
    ReportKept(tensor, groups);
    groups = Joined(std::move(groups));
  }
  return groups.size() > 1 ? Untie(index, groups) : absl::OkStatus();
}

bool Untier::HasSeveralNames(const std::vector<TensorUse>& uses) const {
  std::set<std::string> names;
  for (const TensorUse& use : uses) {
    if (use.node >= 0 && evidence_.IsParameterName(use.name)) names.insert(use.name);
  }
  return names.size() > 1;
}

// One element is always equal to itself, so its value says nothing: two readers of one role without
// names and weights can be one slope of PRelu that the author uses twice.
bool Untier::IsAccident(const FileTensor& tensor, const std::vector<UseGroup>& groups) {
  if (!values_.AllEqual(tensor)) return false;
  if (tensor.shape.num_elements() > 1) return true;
  std::map<ParameterRole, int> groups_of;
  std::set<ParameterRole> guessed;
  for (const UseGroup& group : groups) {
    if (group.role() == ParameterRole::kOther || IsStatistic(group.role())) continue;
    ++groups_of[group.role()];
    if (group.is_guess) guessed.insert(group.role());
  }
  return std::none_of(guessed.begin(), guessed.end(),
                      [&groups_of](ParameterRole role) { return groups_of[role] > 1; });
}

std::vector<UseGroup> Untier::Joined(std::vector<UseGroup> groups) const {
  std::vector<UseGroup> result;
  UseGroup rest;
  for (UseGroup& group : groups) {
    if (IsStatistic(group.role())) {
      result.push_back(std::move(group));
    } else {
      rest.uses.insert(rest.uses.end(), group.uses.begin(), group.uses.end());
    }
  }
  if (!rest.uses.empty()) result.insert(result.begin(), std::move(rest));
  return result;
}

std::vector<UseGroup> Untier::ByParameter(const FileTensor& tensor,
                                          const std::vector<UseGroup>& groups,
                                          const std::vector<int>& parameters) {
  const bool are_apart = values_.AllEqual(tensor);
  const auto first =
      std::find_if(parameters.begin(), parameters.end(), [](int p) { return p >= 0; });
  std::map<int, size_t> places;  // in `parts`, by parameter
  std::vector<std::vector<UseGroup>> parts;
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool stays = parameters[i] < 0 && (are_apart || IsStatistic(groups[i].role()));
    const int parameter = parameters[i] < 0 ? *first : parameters[i];
    const auto [place, is_new] =
        stays ? std::pair(places.end(), true) : places.emplace(parameter, parts.size());
    if (is_new) parts.emplace_back();
    parts[is_new ? parts.size() - 1 : place->second].push_back(groups[i]);
  }
  std::vector<UseGroup> result;
  for (const std::vector<UseGroup>& members : parts) {
    ReportKept(tensor, members);
    UseGroup one;
    for (const UseGroup& member : members) {
      one.uses.insert(one.uses.end(), member.uses.begin(), member.uses.end());
    }
    result.push_back(std::move(one));
  }
  return result;
}

// Copies are apart in the file, and stay so where a pattern names one of both.
bool Untier::MeansCopy(const std::string& pattern) const {
  return std::any_of(copies_.begin(), copies_.end(), [&pattern](const CopiedTensor& copy) {
    return MatchesPattern(pattern, copy.tensor) || MatchesPattern(pattern, copy.copy);
  });
}

bool Untier::IsDemanded(const FileTensor& tensor, const std::vector<UseGroup>& groups) {
  if (patterns_.size() == 1 && patterns_[0] == kAllTensors) return true;
  bool demanded = false;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    bool matches = MatchesPattern(patterns_[i], tensor.name);
    for (const UseGroup& group : groups) {
      for (const TensorUse& use : group.uses) {
        matches = matches || MatchesPattern(patterns_[i], use.name);
        if (matches) continue;
        const std::string module = uses_.ModuleAt(use.reader);
        matches = !module.empty() && MatchesPattern(patterns_[i], module);
      }
    }
    if (!matches || IsWord(patterns_[i])) continue;
    matched_[i] = true;
    demanded = true;
  }
  return demanded;
}

// Who goes on reading the tensor itself: what cannot read another one, else the module of its name,
// else the first parameter that reads it directly.
size_t Untier::KeeperOf(const FileTensor& tensor, const std::vector<UseGroup>& groups) {
  size_t best = groups.size();
  int best_rank = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const UseGroup& group = groups[i];
    if (!CanMove(tensor, group)) return i;
    if (!ReadsDirectly(tensor, group)) continue;
    const TensorUse& use = group.uses.front();
    const std::string module = uses_.ModuleAt(use.reader);
    const bool is_named = !module.empty();
    int rank = group.role() == ParameterRole::kOther ? 1 : IsStatistic(group.role()) ? 2 : 3;
    if (is_named && absl::StartsWith(tensor.name, absl::StrCat(module, "."))) rank = 4;
    if (is_named && tensor.name == absl::StrCat(module, ".", std::string(LeafName(use.role)))) {
      rank = 5;
    }
    if (rank > best_rank) {
      best = i;
      best_rank = rank;
    }
  }
  return best;
}

absl::Status Untier::Untie(int index, const std::vector<UseGroup>& groups) {
  const FileTensor& tensor = uses_.tensors()[static_cast<size_t>(index)];
  const size_t keeper = KeeperOf(tensor, groups);
  const bool is_kept = keeper < groups.size();
  const TensorUse* const owner = is_kept ? &groups[keeper].uses.front() : nullptr;
  // By a name that an Identity node gives: what that node has to read from now on. The first group
  // that reads the name has it; other groups read their tensor directly.
  std::map<std::string, std::string> sources;
  std::vector<size_t> order;
  if (is_kept) order.push_back(keeper);
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i != keeper) order.push_back(i);
  }
  for (const size_t i : order) {
    if (i != keeper && FollowsName(groups[i], sources)) continue;
    std::string source = tensor.name;
    if (i != keeper) {
      const absl::Status status = budget_.Take(tensor.name, tensor.encoded);
      if (!status.ok()) return Annotate(status, uses_.file().Label());
      source = GiveOwnTensor(tensor, groups[i], owner, sources);
      WEFT_RETURN_IF_ERROR(TakeNames(tensor, source.size() + tensor.name.size()));
    }
    for (const TensorUse& use : groups[i].uses) {
      const bool is_direct = use.name == tensor.name;
      if (!is_direct && sources.try_emplace(use.name, source).first->second == source) continue;
      if (use.node < 0 || (is_direct && i == keeper)) continue;
      WEFT_RETURN_IF_ERROR(ReadInstead(tensor, use.node, use.input, source));
    }
  }
  for (const auto& [node, output] : uses_.identities()) {
    if (uses_.TensorOf(output) != index) continue;
    const auto source = sources.find(output);
    // A tensor has taken the name, or nobody but other Identity nodes reads it.
    if (source == sources.end() || source->second == output) {
      edit_.removed_nodes.insert(node);
    } else if (uses_.node(node).input(0) != source->second) {
      WEFT_RETURN_IF_ERROR(ReadInstead(tensor, node, 0, source->second));
    }
  }
  if (!is_kept) Remove(tensor);
  return absl::OkStatus();
}

absl::Status Untier::ReadInstead(const FileTensor& tensor, int node, int input,
                                 const std::string& name) {
  WEFT_RETURN_IF_ERROR(TakeNames(tensor, name.size()));
  edit_.renamed[{node, input}] = name;
  return absl::OkStatus();
}

absl::Status Untier::TakeNames(const FileTensor& tensor, size_t bytes) {
  const absl::Status status = budget_.TakeNames(tensor.name, tensor.encoded, bytes);
  return status.ok() ? status : Annotate(status, uses_.file().Label());
}

// Makes it, and returns its name: one that an Identity node gives and nobody has `taken`, so that
// its readers stay as they are, or a new one.
std::string Untier::GiveOwnTensor(const FileTensor& tensor, const UseGroup& group,
                                  const TensorUse* owner,
                                  const std::map<std::string, std::string>& taken) {
  const auto given = std::find_if(group.uses.begin(), group.uses.end(), [&](const TensorUse& use) {
    return use.name != tensor.name && taken.count(use.name) == 0;
  });
  const std::string name =
      given != group.uses.end() ? given->name : Unique(NameFor(tensor, group, owner));
  edit_.added_initializers.push_back({name, tensor.encoded});
  const bool is_told = !is_asked_ && !IsStatistic(group.role()) && !values_.AllEqual(tensor);
  report_.untied.push_back({name, tensor.name, ReaderText(group.uses.front()),
                            IsStatistic(group.role()), is_asked_, is_told});
  return name;
}

// Nobody reads it any more.
void Untier::Remove(const FileTensor& tensor) {
  if (tensor.initializer >= 0) {
    edit_.removed_initializers.insert(tensor.initializer);
    if (uses_.IsGraphInput(tensor.name)) edit_.removed_inputs.insert(tensor.name);
  } else {
    edit_.removed_nodes.insert(tensor.node);
  }
}

void Untier::ReportKept(const FileTensor& tensor, const std::vector<UseGroup>& groups) {
  std::vector<UseGroup> tied;
  for (const UseGroup& group : groups) {
    const bool counts = !IsStatistic(group.role()) && group.role() != ParameterRole::kOther;
    if (counts) tied.push_back(group);
  }
  if (tied.size() < 2) return;
  KeptTie kept{tensor.name, {}};
  const size_t keeper = KeeperOf(tensor, tied);
  for (size_t i = 0; i < tied.size(); ++i) {
    if (i == std::min(keeper, tied.size() - 1)) continue;
    const TensorUse& use = tied[i].uses.front();
    const std::string module = uses_.ModuleAt(use.reader);
    if (use.name != tensor.name) {
      kept.readers.push_back(use.name);
    } else {
      kept.readers.push_back(module.empty() ? ReaderText(use) : module);
    }
  }
  report_.kept.push_back(std::move(kept));
}

std::string Untier::NameFor(const FileTensor& tensor, const UseGroup& group,
                            const TensorUse* owner) {
  const TensorUse& use = group.uses.front();
  if (use.reader < 0) return absl::StrCat(tensor.name, ".own");
  const onnx::NodeProto& reader = uses_.node(use.reader);
  const std::string leaf(LeafName(use.role));
  // "out_proj.weight" beside it makes it "out_proj.bias", "in_proj_weight" "in_proj_bias".
  const int partner = use.role == ParameterRole::kWeight ? -1 : groups_.PartnerOf(use);
  if (partner >= 0) {
    absl::string_view stem = uses_.tensors()[static_cast<size_t>(partner)].name;
    if (absl::ConsumeSuffix(&stem, kWeightSuffix) && !stem.empty() && leaf != kWeightSuffix) {
      return absl::StrCat(stem, leaf);
    }
  }
  const std::string module = uses_.ModuleAt(use.reader);
  // What is used as no parameter does not take a parameter's name.
  const bool is_anothers = use.role == ParameterRole::kOther && HasNameScopes(reader) &&
                           evidence_.IsParameterName(absl::StrCat(module, ".", leaf));
  if (!module.empty() && !is_anothers) {
    if (owner != nullptr && owner->reader >= 0) {
      const onnx::NodeProto& own = uses_.node(owner->reader);
      const std::string own_module = uses_.ModuleAt(owner->reader);
      const bool is_alike = own.op_type() == reader.op_type() && owner->port == use.port;
      absl::string_view own_leaf = tensor.name;
      if (is_alike && absl::ConsumePrefix(&own_leaf, absl::StrCat(own_module, "."))) {
        return absl::StrCat(module, ".", own_leaf);
      }
    }
    return absl::StrCat(module, ".", leaf);
  }
  const std::string node = !reader.name().empty()     ? reader.name()
                           : reader.output_size() > 0 ? reader.output(0)
                                                      : absl::StrCat("node_", use.reader);
  return absl::StrCat(node, ".", PortName(reader, use.port));
}

std::string Untier::Unique(const std::string& name) {
  int& number = numbers_[name];  // what is below it is taken
  std::string unique;
  do {
    ++number;
    unique = number == 1 ? name : absl::StrCat(name, "_", number);
  } while (uses_.IsTaken(unique) || made_.count(unique) > 0);
  made_.insert(unique);
  return unique;
}

std::string Untier::ReaderText(const TensorUse& use) const {
  if (use.reader < 0) return "an output or a subgraph";
  const onnx::NodeProto& reader = uses_.node(use.reader);
  const std::string name = !reader.name().empty()     ? reader.name()
                           : reader.output_size() > 0 ? reader.output(0)
                                                      : absl::StrCat("node_", use.reader);
  return absl::StrCat(name, " (", reader.op_type(), ")");
}

}  // namespace

absl::Status PlanUntying(const TensorUses& uses, TensorValues& values, UseGroups& groups,
                         TieEvidence& evidence, const std::vector<std::string>& patterns,
                         const std::vector<CopiedTensor>& copies, CopyBudget& budget,
                         FileEdit& edit, TieReport& report) {
  return Untier(uses, values, groups, evidence, patterns, copies, budget, edit, report).Run();
}

}  // namespace weft
