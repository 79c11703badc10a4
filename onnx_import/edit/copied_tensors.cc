#include "onnx_import/edit/copied_tensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/wire.pb.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

constexpr int64_t kMinElements = 64;
// Smaller ones are copies only if most of their numbers differ from each other: an identity matrix
// is none.
constexpr int64_t kConclusiveElements = 1024;
constexpr char kAuto[] = "auto";
// Tensors that agree in their samples and differ elsewhere; only a file made for it has so many.
constexpr size_t kMaxAlike = 16;

// Candidates that can be equal: dtype, extents in an order that transposing does not change, and a
// sample of the elements.
using CopyKey = std::tuple<DType, std::vector<int64_t>, std::string>;

bool IsWeight(const TensorUses& uses, int tensor, bool* is_table) {
  bool is_weight = false;
  *is_table = false;
  for (const TensorUse& use : uses.uses(tensor)) {
    if (use.role != ParameterRole::kWeight) continue;
    is_weight = true;
    *is_table = *is_table || uses.node(use.reader).op_type() == "Gather";
  }
  return is_weight;
}

bool IsMadeUp(const std::string& name) {
  return absl::StartsWith(name, "onnx::") || absl::StartsWith(name, "val_");
}

std::optional<CopyKey> KeyOfTensor(const FileTensor& tensor, const TensorValues& values) {
  std::vector<int64_t> extents;
  for (int i = 0; i < tensor.shape.rank(); ++i) extents.push_back(tensor.shape.dim(i));
  if (extents.size() == 2) std::sort(extents.begin(), extents.end());
  std::optional<std::string> sample = values.Sample(tensor);
  if (!sample.has_value()) return std::nullopt;
  return CopyKey(tensor.dtype, std::move(extents), *std::move(sample));
}

absl::Status TieError(const std::string& text, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("--tie ", text, ": ", why));
}

// The places of "=" may be in names; the one that parts two initializers counts.
absl::StatusOr<std::pair<int, int>> SplitTie(const TensorUses& uses, const std::string& text) {
  for (size_t at = text.find('='); at != std::string::npos; at = text.find('=', at + 1)) {
    const int a = uses.TensorOf(text.substr(0, at));
    const int b = uses.TensorOf(text.substr(at + 1));
    if (a >= 0 && b >= 0) return std::pair(a, b);
  }
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    return TieError(text, "expected TENSOR=COPY, or auto for all copies");
  }
  std::vector<std::string> names;
  for (const FileTensor& tensor : uses.tensors()) names.push_back(tensor.name);
  const std::string left = text.substr(0, equals);
  const std::string wrong = uses.TensorOf(left) < 0 ? left : text.substr(equals + 1);
  return TieError(text, absl::StrCat("the model has no float tensor ", Quoted(wrong),
                                     DidYouMean(wrong, names)));
}

absl::StatusOr<CopiedTensor> ParseTie(const TensorUses& uses, TensorValues& values,
                                      const std::string& text) {
  WEFT_ASSIGN_OR_RETURN(const auto pair, SplitTie(uses, text));
  const FileTensor& tensor = uses.tensors()[static_cast<size_t>(pair.first)];
  const FileTensor& copy = uses.tensors()[static_cast<size_t>(pair.second)];
  if (pair.first == pair.second) return TieError(text, "both are one tensor already");
  for (const FileTensor* const one : {&tensor, &copy}) {
    if (one->initializer >= 0) continue;
    return TieError(text, absl::StrCat(Quoted(one->name),
                                       " is a Constant node, expected two "
                                       "initializers; export the model again"));
  }
  const TensorMatch match = values.Compare(tensor, copy);
  if (match == TensorMatch::kNone) {
    return TieError(text, absl::StrCat(Quoted(tensor.name), " (", tensor.shape.ToString(), ") and ",
                                       Quoted(copy.name), " (", copy.shape.ToString(),
                                       ") hold different numbers; only tensors that are equal, or "
                                       "equal when one is transposed, can be tied"));
  }
  return CopiedTensor{tensor.name, copy.name, match == TensorMatch::kTransposed};
}

}  // namespace

std::vector<CopiedTensor> FindCopies(const TensorUses& uses, TensorValues& values) {
  // Tables first, made-up names last.
  std::vector<std::tuple<bool, bool, int>> candidates;
  for (size_t i = 0; i < uses.tensors().size(); ++i) {
    const FileTensor& tensor = uses.tensors()[i];
    bool is_table = false;
    const bool fits = tensor.initializer >= 0 && tensor.shape.rank() >= 2 &&
                      tensor.shape.num_elements() >= kMinElements &&
                      IsWeight(uses, static_cast<int>(i), &is_table);
    if (fits) candidates.emplace_back(!is_table, IsMadeUp(tensor.name), static_cast<int>(i));
  }
  std::sort(candidates.begin(), candidates.end());
  std::map<CopyKey, std::vector<int>> originals;
  std::vector<std::pair<int, CopiedTensor>> copies;
  for (const auto& candidate : candidates) {
    const int index = std::get<2>(candidate);
    const FileTensor& tensor = uses.tensors()[static_cast<size_t>(index)];
    std::optional<CopyKey> key = KeyOfTensor(tensor, values);
    if (!key.has_value() || values.AllEqual(tensor)) continue;
    if (tensor.shape.num_elements() < kConclusiveElements && !values.MostlyDiffer(tensor)) continue;
    std::vector<int>& known = originals[*std::move(key)];
    TensorMatch match = TensorMatch::kNone;
    for (const int other : known) {
      const FileTensor& original = uses.tensors()[static_cast<size_t>(other)];
      match = values.Compare(original, tensor);
      if (match == TensorMatch::kNone) continue;
      copies.push_back({other, {original.name, tensor.name, match == TensorMatch::kTransposed}});
      break;
    }
    if (match == TensorMatch::kNone && known.size() < kMaxAlike) known.push_back(index);
  }
  std::stable_sort(copies.begin(), copies.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<CopiedTensor> result;
  for (auto& [original, copy] : copies) result.push_back(std::move(copy));
  return result;
}

std::map<int, int> CopiesInOneModule(const TensorUses& uses,
                                     const std::vector<CopiedTensor>& copies) {
  std::map<int, int> originals;
  int last = -1;  // the copies of one tensor follow each other
  std::set<std::string> modules;
  for (const CopiedTensor& copy : copies) {
    const int original = uses.TensorOf(copy.tensor);
    const int other = uses.TensorOf(copy.copy);
    if (original != last) modules = uses.WeightReadersOf(original);
    last = original;
    const bool is_one = modules.size() == 1 && !modules.begin()->empty() &&
                        modules == uses.WeightReadersOf(other) && IsMadeUp(copy.copy);
    if (is_one) originals.emplace(other, original);
  }
  return originals;
}

bool IsOneParameter(const TensorUses& uses, const CopiedTensor& copy, TieEvidence& evidence) {
  if (evidence.IsParameterName(copy.copy)) return false;
  const std::set<std::string>& modules = evidence.WeightReadersOf(uses.TensorOf(copy.copy));
  const std::set<std::string>& others = evidence.WeightReadersOf(uses.TensorOf(copy.tensor));
  if (evidence.IsParameterName(copy.tensor)) {
    return std::none_of(modules.begin(), modules.end(), [&](const std::string& module) {
      return evidence.IsOfAnother(copy.tensor, module) ||
             (!others.empty() && evidence.AreCopies(*others.begin(), module));
    });
  }
  return !modules.empty() && !others.empty() &&
         evidence.AreOne(*others.begin(), *modules.begin()).value_or(false);
}

void TieCopy(const TensorUses& uses, const CopiedTensor& tie, FileEdit& edit) {
  const FileTensor& copy = uses.tensors()[static_cast<size_t>(uses.TensorOf(tie.copy))];
  edit.removed_initializers.insert(copy.initializer);
  if (uses.IsGraphInput(copy.name)) edit.removed_inputs.insert(copy.name);
  onnx::NodeProto node;
  node.add_input(tie.tensor);
  node.add_output(copy.name);
  node.set_name(absl::StrCat(copy.name, "/tied"));
  node.set_op_type(tie.transposed ? "Transpose" : "Identity");
  if (tie.transposed) {
    onnx::AttributeProto& order = *node.add_attribute();
    order.set_name("perm");
    order.set_type(onnx::AttributeProto::INTS);
    order.add_ints(1);
    order.add_ints(0);
  }
  edit.first_nodes.push_back(node.SerializeAsString());
}

absl::StatusOr<std::vector<CopiedTensor>> ParseTies(const TensorUses& uses, TensorValues& values,
                                                    const std::vector<std::string>& texts,
                                                    const std::vector<CopiedTensor>& copies) {
  std::vector<CopiedTensor> ties;
  std::set<std::string> tied;
  for (const std::string& text : texts) {
    std::vector<CopiedTensor> added;
    if (text == kAuto) {
      added = copies;
    } else {
      WEFT_ASSIGN_OR_RETURN(CopiedTensor tie, ParseTie(uses, values, text));
      added.push_back(std::move(tie));
    }
    for (CopiedTensor& tie : added) {
      if (!tied.insert(tie.copy).second) {
        if (text == kAuto) continue;
        return TieError(text, absl::StrCat(Quoted(tie.copy), " is tied already"));
      }
      tie.is_asked = true;
      ties.push_back(std::move(tie));
    }
  }
  for (const CopiedTensor& tie : ties) {
    if (tied.count(tie.tensor) == 0) continue;
    return TieError(absl::StrCat(tie.tensor, "=", tie.copy),
                    absl::StrCat(Quoted(tie.tensor),
                                 " is itself tied to another tensor; tie both to that one"));
  }
  return ties;
}

}  // namespace weft
