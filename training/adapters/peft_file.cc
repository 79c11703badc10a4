#include "training/adapters/peft_file.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "executor/variables/safetensors.h"
#include "platform/checksum.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tensor/special_values.h"
#include "training/adapters/module_names.h"
#include "training/adapters/peft_config.h"

namespace weft {
namespace {

constexpr char kPrefix[] = "base_model.model.";
constexpr int64_t kMaxPeftRank = 65536;

std::string QuotedName(const std::string& name) {
  return absl::StrCat("'", absl::Utf8SafeCEscape(name), "'");
}

uint64_t ChecksumOf(std::span<const std::byte> tensors, const std::optional<std::string>& config) {
  std::string text = absl::StrCat(Checksum(tensors));
  if (config.has_value()) absl::StrAppend(&text, ";", *config);
  return Checksum(std::as_bytes(std::span(text)));
}

// Reads one file.
class PeftReader {
 public:
  PeftReader(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {}

  absl::StatusOr<PeftAdapters> Read(const std::optional<std::string>& config);

 private:
  absl::Status Bad(const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::Utf8SafeCEscape(path_), "\": ", what));
  }
  absl::Status Take(const SafetensorsEntry& entry);
  absl::Status Check(const PeftAdapter& adapter) const;

  const std::span<const std::byte> file_;
  const std::string& path_;
  std::map<std::string, PeftAdapter> modules_;
};

absl::Status PeftReader::Take(const SafetensorsEntry& entry) {
  absl::string_view name = entry.name;
  absl::ConsumePrefix(&name, kPrefix);
  bool is_half = absl::ConsumeSuffix(&name, ".weight");
  absl::ConsumeSuffix(&name, ".default");
  const bool is_a = absl::ConsumeSuffix(&name, ".lora_A");
  is_half = is_half && (is_a || absl::ConsumeSuffix(&name, ".lora_B")) && !name.empty();
  if (!is_half) {
    return Bad(absl::StrCat("tensor ", QuotedName(entry.name),
                            " is no half of an adapter; expected ", kPrefix,
                            "MODULE.lora_A.weight or lora_B.weight"));
  }
  const bool is_float = entry.dtype == DType::kFloat32 || entry.dtype == DType::kFloat16 ||
                        entry.dtype == DType::kBfloat16 || entry.dtype == DType::kFloat64;
  if (!is_float || entry.shape.rank() < 2) {
    return Bad(absl::StrCat("tensor ", QuotedName(entry.name), " is ",
                            std::string(DTypeName(entry.dtype)), entry.shape.ToString(),
                            ", expected a matrix of floating-point numbers"));
  }
  PeftAdapter& adapter = modules_[std::string(name)];
  adapter.module = std::string(name);
  Tensor& half = is_a ? adapter.a : adapter.b;
  if (half.valid()) {
    return Bad(absl::StrCat("tensor ", QuotedName(entry.name), " is there under two names"));
  }
  WEFT_ASSIGN_OR_RETURN(half, Tensor::Allocate(entry.dtype, entry.shape));
  // The layout has been checked against the file.
  std::memcpy(half.raw_data(), file_.data() + entry.offset, half.bytes());
  const int64_t bad = FindNonFinite(half);
  if (bad < 0) return absl::OkStatus();
  return Bad(
      absl::StrCat("tensor ", QuotedName(entry.name), " has the element ", ElementText(half, bad)));
}

absl::Status PeftReader::Check(const PeftAdapter& adapter) const {
  if (!adapter.a.valid() || !adapter.b.valid()) {
    return Bad(absl::StrCat("module ", QuotedName(adapter.module), " has no ",
                            adapter.a.valid() ? "lora_B" : "lora_A"));
  }
  const int64_t rank = adapter.a.shape().dim(0);
  const bool fits = rank > 0 && rank <= kMaxPeftRank && adapter.b.shape().dim(1) == rank &&
                    adapter.a.num_elements() > 0 && adapter.b.num_elements() > 0;
  if (fits) return absl::OkStatus();
  return Bad(absl::StrCat("module ", QuotedName(adapter.module), " has lora_A ",
                          adapter.a.shape().ToString(), " and lora_B ",
                          adapter.b.shape().ToString(),
                          ", expected [r,in] and [out,r], r from 1 to ", kMaxPeftRank));
}

absl::StatusOr<PeftAdapters> PeftReader::Read(const std::optional<std::string>& config) {
  WEFT_ASSIGN_OR_RETURN(const SafetensorsLayout layout, ParseSafetensors(file_, path_));
  for (const SafetensorsEntry& entry : layout.tensors) WEFT_RETURN_IF_ERROR(Take(entry));
  if (modules_.empty()) return Bad("it has no adapter");
  std::optional<PeftConfig> read;
  if (config.has_value()) {
    WEFT_ASSIGN_OR_RETURN(read, ParsePeftConfig(*config, PeftConfigPath(path_)));
  }
  PeftAdapters result;
  result.path = path_;
  result.checksum = ChecksumOf(file_, config);
  for (auto& [module, adapter] : modules_) {
    WEFT_RETURN_IF_ERROR(Check(adapter));
    if (read.has_value()) {
      WEFT_ASSIGN_OR_RETURN(adapter.scale, read->ScaleOf(module, adapter.a.shape().dim(0)));
    }
    result.adapters.push_back(std::move(adapter));
  }
  return result;
}

// The same numbers with rows and columns exchanged.
absl::StatusOr<Tensor> Transposed(const Tensor& matrix) {
  const int64_t rows = matrix.shape().dim(0), columns = matrix.shape().dim(1);
  WEFT_ASSIGN_OR_RETURN(Tensor result, Tensor::Allocate(matrix.dtype(), Shape{columns, rows}));
  const auto bytes = static_cast<size_t>(DTypeBytes(matrix.dtype(), 1));
  const auto* const from = static_cast<const std::byte*>(matrix.raw_data());
  auto* const to = static_cast<std::byte*>(result.raw_data());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      std::memcpy(to + static_cast<size_t>(column * rows + row) * bytes,
                  from + static_cast<size_t>(row * columns + column) * bytes, bytes);
    }
  }
  return result;
}

// Whether A and B, of one rank, can belong to a weight: its outputs are axis 0, or axis 1 of two.
bool FitsWeight(const PeftAdapter& adapter, const Shape& weight) {
  const int64_t rank = adapter.a.shape().dim(0);
  const int64_t in = adapter.a.num_elements() / rank, out = adapter.b.num_elements() / rank;
  if (weight.rank() < 2 || weight.num_elements() != in * out) return false;
  return weight.dim(0) == out || (weight.rank() == 2 && weight.dim(1) == out);
}

absl::Status Misfit(const PeftAdapters& peft, const PeftAdapter& adapter, const Variable& variable,
                    const Shape& weight) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::Utf8SafeCEscape(peft.path), "\": module ", QuotedName(adapter.module),
      " has lora_A ", adapter.a.shape().ToString(), " and lora_B ", adapter.b.shape().ToString(),
      ", which do not fit the weight ", QuotedName(variable.name), " ", weight.ToString(),
      "; the adapters are of another model"));
}

absl::Status SetInitial(Graph& graph, const std::string& name, const Tensor& half, bool transposes,
                        bool& fits) {
  for (Variable& variable : graph.mutable_variables()) {
    if (variable.name != name) continue;
    const ValueType& type = graph.value(variable.value).type;
    Tensor lying = half;
    if (transposes && half.shape().rank() == 2) {
      WEFT_ASSIGN_OR_RETURN(lying, Transposed(half));
    }
    fits = type.shape.ToConcrete() == lying.shape();
    if (!fits) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(variable.initial, CastTensor(lying, type.dtype));
    const int64_t bad = FindNonFinite(variable.initial);
    if (bad < 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        QuotedName(name), " is ", std::string(DTypeName(type.dtype)),
        " as its weight, which cannot hold the number ", ElementText(lying, bad), " of the file"));
  }
  return absl::InternalError(absl::StrCat("there is no variable '", name, "'"));
}

}  // namespace

std::string PeftConfigPath(const std::string& path) {
  const size_t slash = path.rfind('/');
  return absl::StrCat(slash == std::string::npos ? "" : path.substr(0, slash + 1), kPeftConfig);
}

absl::StatusOr<PeftAdapters> ParsePeft(std::span<const std::byte> tensors,
                                       const std::optional<std::string>& config,
                                       const std::string& path) {
  return PeftReader(tensors, path).Read(config);
}

absl::StatusOr<PeftAdapters> ReadPeft(FileSystem& files, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, files.ReadFile(path));
  std::optional<std::string> config;
  if (files.Exists(PeftConfigPath(path))) {
    WEFT_ASSIGN_OR_RETURN(config, files.ReadFileUpTo(PeftConfigPath(path), kMaxPeftConfigBytes));
  }
  return ParsePeft(std::as_bytes(std::span(bytes)), config, path);
}

absl::StatusOr<std::map<std::string, LoraSpec::Given>> WeightsOfPeft(const PeftAdapters& peft,
                                                                     const Graph& graph,
                                                                     double alpha) {
  const ModuleNames names(graph);
  std::map<std::string, LoraSpec::Given> given;
  for (const PeftAdapter& adapter : peft.adapters) {
    WEFT_ASSIGN_OR_RETURN(const Variable* const variable, names.Find(adapter.module, peft.path));
    const auto weight = graph.value(variable->value).type.shape.ToConcrete();
    if (!weight.has_value() || !FitsWeight(adapter, *weight)) {
      return Misfit(peft, adapter, *variable, weight.value_or(Shape{}));
    }
    LoraSpec::Given one;
    one.rank = adapter.a.shape().dim(0);
    if (!adapter.scale.has_value() && !(alpha > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", absl::Utf8SafeCEscape(peft.path), "\" has no ", kPeftConfig,
          " beside it, so how often its products count is not known; give --lora alpha=X"));
    }
    one.scale = adapter.scale.value_or(alpha / static_cast<double>(one.rank));
    if (!given.emplace(variable->name, one).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", absl::Utf8SafeCEscape(peft.path), "\" has two adapters of the weight ",
          QuotedName(variable->name), ", one of them as module ", QuotedName(adapter.module)));
    }
  }
  return given;
}

absl::Status StartFromPeft(const PeftAdapters& peft, Graph& graph,
                           const std::vector<LoraAdapter>& adapters) {
  const ModuleNames names(graph);
  std::map<std::string, const PeftAdapter*> by_weight;
  for (const PeftAdapter& adapter : peft.adapters) {
    WEFT_ASSIGN_OR_RETURN(const Variable* const variable, names.Find(adapter.module, peft.path));
    by_weight[variable->name] = &adapter;
  }
  for (const LoraAdapter& adapter : adapters) {
    const auto found = by_weight.find(adapter.weight);
    if (found == by_weight.end()) continue;
    bool fits_a = false, fits_b = false;
    const std::string file = absl::StrCat("\"", absl::Utf8SafeCEscape(peft.path), "\"");
    WEFT_RETURN_IF_ERROR(Annotate(
        SetInitial(graph, adapter.a, found->second->a, !adapter.is_transposed, fits_a), file));
    WEFT_RETURN_IF_ERROR(Annotate(
        SetInitial(graph, adapter.b, found->second->b, !adapter.is_transposed, fits_b), file));
    if (fits_a && fits_b) continue;
    const Variable* const weight = graph.FindVariable(adapter.weight);
    return Misfit(peft, *found->second, *weight,
                  graph.value(weight->value).type.shape.ToConcrete().value_or(Shape{}));
  }
  return absl::OkStatus();
}

absl::StatusOr<PeftFiles> WritePeft(const Graph& graph, const std::vector<LoraAdapter>& adapters,
                                    const std::map<std::string, Tensor>& values) {
  const std::map<std::string, std::string> modules = ModulesOfAdapters(graph, adapters);
  PeftConfig config;
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, Tensor> lying;
  for (const LoraAdapter& adapter : adapters) {
    const auto a = values.find(adapter.a), b = values.find(adapter.b);
    if (a == values.end() || b == values.end()) continue;
    const std::string& module = modules.at(adapter.weight);
    for (const auto& [half, letter] : {std::pair(a->second, "A"), std::pair(b->second, "B")}) {
      const std::string name = absl::StrCat(kPrefix, module, ".lora_", letter, ".weight");
      Tensor& tensor = lying[name];
      tensor = half;
      if (!adapter.is_transposed) {
        WEFT_ASSIGN_OR_RETURN(tensor, Transposed(half));
      }
      entries.push_back({name, tensor.dtype(), tensor.shape(), 0});
    }
    const int64_t rank = a->second.shape().dim(adapter.is_transposed ? 0 : 1);
    config.Add(module, rank, adapter.scale);
    config.fan_in_fan_out |= !adapter.is_transposed && absl::EndsWith(adapter.weight, ".weight");
  }
  WEFT_ASSIGN_OR_RETURN(const SafetensorsLayout layout,
                        LayOutSafetensors(std::move(entries), {{"format", "pt"}}));
  PeftFiles files;
  files.tensors = layout.header;
  for (const SafetensorsEntry& entry : layout.tensors) {
    const Tensor& tensor = lying.at(entry.name);
    files.tensors.append(static_cast<const char*>(tensor.raw_data()), tensor.bytes());
  }
  files.config = config.ToJson();
  return files;
}

}  // namespace weft
