#include "onnx_import/unfolding/unfold_norms.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "onnx_import/codec/model_validator.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/tensor_codec.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/file_edit.h"
#include "onnx_import/edit/tensor_uses.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "tensor/tensor.h"

namespace weft {
namespace {

constexpr int64_t kNormWithoutMode = 7;  // the first operator set in which is_test is gone
constexpr double kUnfoldedEpsilon = 1e-5;
constexpr float kUnfoldedMomentum = 0.9F;
constexpr int kConvWeight = 1;
constexpr int kConvBias = 2;
// Traces of exporters.
constexpr char kRuleKey[] = "pkg.onnxscript.rewriter.rule_name";
constexpr char kFusingRule[] = "FuseBatchNormIntoConv";
constexpr char kScriptedConv[] = "onnx::Conv_";

bool IsOnnxOperator(const onnx::NodeProto& node, const char* op) {
  return node.op_type() == op && NormalizedDomain(node.domain()).empty();
}

int64_t OnnxOpset(const ModelFile& file) {
  for (const onnx::OperatorSetIdProto& opset : file.proto()->opset_import()) {
    if (NormalizedDomain(opset.domain()).empty()) return opset.version();
  }
  return 0;
}

std::string NameOfConv(const onnx::NodeProto& node) {
  return node.name().empty() ? node.output(0) : node.name();
}

// A Conv whose operands are tensors of the file.
struct Convolution {
  const onnx::NodeProto* node = nullptr;
  const FileTensor* weight = nullptr;
  const FileTensor* bias = nullptr;  // null: none
  bool is_normalized = false;        // BatchNormalization reads it
};

// Null where the node is none, or not one that can be normalized.
Convolution ConvolutionAt(const TensorUses& uses, int place) {
  Convolution found;
  const onnx::NodeProto& node = uses.node(place);
  if (!IsOnnxOperator(node, "Conv") || node.input_size() <= kConvWeight) return found;
  if (node.output_size() != 1 || node.output(0).empty()) return found;
  const int weight = uses.TensorOf(node.input(kConvWeight));
  if (weight < 0) return found;
  found.weight = &uses.tensors()[static_cast<size_t>(weight)];
  const bool is_float =
      found.weight->dtype == DType::kFloat32 || found.weight->dtype == DType::kFloat64;
  if (!is_float || found.weight->shape.rank() < 3) return found;
  if (node.input_size() > kConvBias && !node.input(kConvBias).empty()) {
    const int bias = uses.TensorOf(node.input(kConvBias));
    if (bias < 0) return found;
    found.bias = &uses.tensors()[static_cast<size_t>(bias)];
    if (found.bias->shape != Shape({found.weight->shape.dim(0)})) return found;
  }
  for (const auto& [reader, input] : uses.ReadersOf(node.output(0))) {
    found.is_normalized =
        found.is_normalized || IsOnnxOperator(uses.node(reader), "BatchNormalization");
  }
  found.node = &node;
  return found;
}

bool HasTraceOfFolding(const Convolution& convolution) {
  for (const onnx::StringStringEntryProto& entry : convolution.node->metadata_props()) {
    if (entry.key() == kRuleKey && absl::StrContains(entry.value(), kFusingRule)) return true;
  }
  if (convolution.bias == nullptr) return false;
  const std::string& weight = convolution.weight->name;
  const std::string& bias = convolution.bias->name;
  return bias == absl::StrCat(weight, "_bias") ||
         (absl::StartsWith(weight, kScriptedConv) && absl::StartsWith(bias, kScriptedConv));
}

bool IsCalled(const TensorUses& uses, const Convolution& convolution, int place,
              const std::string& pattern) {
  return MatchesPattern(pattern, convolution.node->name()) ||
         MatchesPattern(pattern, convolution.node->output(0)) ||
         MatchesPattern(pattern, convolution.weight->name) ||
         MatchesPattern(pattern, uses.ModuleAt(place));
}

absl::Status CheckUnfoldable(const ModelFile& file) {
  if (file.proto()->training_info_size() > 0) {
    return absl::UnimplementedError(
        absl::StrCat(file.Label(),
                     " brings its own training (training_info), which names its "
                     "tensors; it is not repaired"));
  }
  const int64_t opset = OnnxOpset(file);
  if (opset >= kNormWithoutMode) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      file.Label(), " is of operator set ", opset,
      ", in which BatchNormalization has another form; export it for set 7 or a later one"));
}

// Makes the edit of one file.
class Unfolder {
 public:
  Unfolder(const TensorUses& uses, const std::map<std::string, ChannelStatistics>& statistics)
      : uses_(uses), statistics_(statistics) {}

  absl::Status Unfold(const FoldedNorm& norm);
  // After all: biases that nobody reads any more.
  void DropBiases();
  // Borrows this.
  FileEdit TakeEdit();

 private:
  absl::StatusOr<ChannelStatistics> StatisticsOf(const FoldedNorm& norm) const;
  absl::StatusOr<std::vector<double>> BiasOf(const Convolution& convolution,
                                             int64_t channels) const;
  std::string ModuleOfNorm(const Convolution& convolution, int place) const;
  // `name` and `end`, perhaps with a number between them, so that no other has the whole.
  std::string Own(const std::string& name, const std::string& end = "");
  // An initializer; returns its name.
  std::string AddTensor(const std::string& name, DType dtype, const std::vector<double>& values);

  const TensorUses& uses_;
  const std::map<std::string, ChannelStatistics>& statistics_;
  FileEdit edit_;
  std::set<std::string> made_;
  std::set<int> unfolded_;                                    // places of convolutions
  std::vector<std::pair<std::string, std::string>> tensors_;  // name, encoded
};

absl::StatusOr<ChannelStatistics> Unfolder::StatisticsOf(const FoldedNorm& norm) const {
  const auto channels = static_cast<size_t>(norm.channels);
  const auto found = statistics_.find(norm.output);
  if (found == statistics_.end()) {
    return ChannelStatistics{std::vector<double>(channels, 0), std::vector<double>(channels, 1)};
  }
  const ChannelStatistics& measured = found->second;
  if (measured.mean.size() != channels || measured.variance.size() != channels) {
    return absl::InvalidArgumentError(absl::StrCat("there are statistics of ", measured.mean.size(),
                                                   " channels, expected ", channels));
  }
  for (size_t i = 0; i < channels; ++i) {
    const bool is_finite = std::isfinite(measured.mean[i]) && measured.variance[i] >= 0 &&
                           std::isfinite(measured.variance[i]);
    if (is_finite) continue;
    return absl::InvalidArgumentError(absl::StrCat("channel ", i, " has mean ", measured.mean[i],
                                                   " and variance ", measured.variance[i],
                                                   " on these data"));
  }
  return measured;
}

absl::StatusOr<std::vector<double>> Unfolder::BiasOf(const Convolution& convolution,
                                                     int64_t channels) const {
  if (convolution.bias == nullptr) return std::vector<double>(static_cast<size_t>(channels), 0);
  const auto bias =
      DecodeTensor(*convolution.bias->proto, {uses_.file().proto(), uses_.file().external()});
  if (!bias.ok()) return Annotate(bias.status(), convolution.bias->name);
  return ToDoubles(*bias);
}

// Where the exporter says the normalization's own name, that; else the convolution's, and "norm".
std::string Unfolder::ModuleOfNorm(const Convolution& convolution, int place) const {
  const std::string module = uses_.ModuleAt(place);
  absl::string_view stem = convolution.weight->name;
  const bool has_stem = absl::ConsumeSuffix(&stem, ".weight") && !stem.empty();
  if (has_stem && !module.empty() && module != stem) return module;
  if (has_stem) return absl::StrCat(stem, ".norm");
  return absl::StrCat(module.empty() ? NameOfConv(*convolution.node) : module, ".norm");
}

std::string Unfolder::Own(const std::string& name, const std::string& end) {
  std::string own = absl::StrCat(name, end);
  for (int number = 2; uses_.IsTaken(own) || !made_.insert(own).second; ++number) {
    own = absl::StrCat(name, "_", number, end);
  }
  return own;
}

std::string Unfolder::AddTensor(const std::string& name, DType dtype,
                                const std::vector<double>& values) {
  onnx::TensorProto tensor;
  tensor.set_data_type(static_cast<int>(dtype));
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (const double value : values) {
    if (dtype == DType::kFloat64) {
      tensor.add_double_data(value);
    } else {
      tensor.add_float_data(static_cast<float>(value));
    }
  }
  const std::string own = Own(name);
  tensors_.emplace_back(own, tensor.SerializeAsString());
  return own;
}

absl::Status Unfolder::Unfold(const FoldedNorm& norm) {
  const Convolution convolution = ConvolutionAt(uses_, norm.node);
  if (convolution.node == nullptr) {
    return absl::InternalError(absl::StrCat("node ", norm.node, " is no convolution"));
  }
  WEFT_ASSIGN_OR_RETURN(const ChannelStatistics measured, StatisticsOf(norm));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> bias, BiasOf(convolution, norm.channels));
  const DType dtype = convolution.weight->dtype;
  std::vector<double> scale;
  std::vector<double> mean;
  for (size_t i = 0; i < bias.size(); ++i) {
    // Of the variance as the file will have it.
    const double variance = dtype == DType::kFloat32
                                ? static_cast<double>(static_cast<float>(measured.variance[i]))
                                : measured.variance[i];
    scale.push_back(std::sqrt(variance + kUnfoldedEpsilon));
    mean.push_back(measured.mean[i] - bias[i]);
  }
  onnx::NodeProto bare = *convolution.node;
  while (bare.input_size() > kConvBias) bare.mutable_input()->RemoveLast();
  bare.set_output(0, Own(absl::StrCat(norm.output, "/folded")));
  onnx::NodeProto normalization;
  const std::string module = ModuleOfNorm(convolution, norm.node);
  normalization.set_op_type("BatchNormalization");
  normalization.set_name(Own(norm.convolution, absl::StrCat("/", kUnfoldedNorm)));
  normalization.add_input(bare.output(0));
  normalization.add_input(AddTensor(absl::StrCat(module, ".weight"), dtype, scale));
  normalization.add_input(AddTensor(absl::StrCat(module, ".bias"), dtype, measured.mean));
  normalization.add_input(AddTensor(absl::StrCat(module, ".running_mean"), dtype, mean));
  normalization.add_input(
      AddTensor(absl::StrCat(module, ".running_var"), dtype, measured.variance));
  normalization.add_output(norm.output);
  const auto set = [&normalization](const char* name, float value) {
    onnx::AttributeProto& attribute = *normalization.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::FLOAT);
    attribute.set_f(value);
  };
  set("epsilon", static_cast<float>(kUnfoldedEpsilon));
  set("momentum", kUnfoldedMomentum);
  edit_.replaced_nodes[norm.node] = {bare.SerializeAsString(), normalization.SerializeAsString()};
  unfolded_.insert(norm.node);
  return absl::OkStatus();
}

void Unfolder::DropBiases() {
  for (size_t i = 0; i < uses_.tensors().size(); ++i) {
    const FileTensor& tensor = uses_.tensors()[i];
    const std::vector<TensorUse>& all = uses_.uses(static_cast<int>(i));
    const bool is_unread =
        !all.empty() && std::all_of(all.begin(), all.end(), [&](const TensorUse& use) {
          return use.name == tensor.name && use.input == kConvBias && unfolded_.contains(use.node);
        });
    if (!is_unread) continue;
    if (tensor.initializer < 0) {
      edit_.removed_nodes.insert(tensor.node);
      continue;
    }
    edit_.removed_initializers.insert(tensor.initializer);
    if (uses_.IsGraphInput(tensor.name)) edit_.removed_inputs.insert(tensor.name);
  }
}

FileEdit Unfolder::TakeEdit() {
  for (const auto& [name, encoded] : tensors_) edit_.added_initializers.push_back({name, encoded});
  return std::move(edit_);
}

}  // namespace

absl::StatusOr<std::vector<FoldedNorm>> FindFoldedNorms(const ModelFile& file,
                                                        const std::vector<std::string>& patterns) {
  WEFT_RETURN_IF_ERROR(CheckUnfoldable(file));
  const TensorUses uses(file);
  std::vector<FoldedNorm> norms;
  std::vector<bool> fitted(patterns.size());
  for (int place = 0; place < file.proto()->graph().node_size(); ++place) {
    const Convolution convolution = ConvolutionAt(uses, place);
    if (convolution.node == nullptr) continue;
    bool wanted = patterns.empty() && HasTraceOfFolding(convolution) && !convolution.is_normalized;
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (!IsCalled(uses, convolution, place, patterns[i])) continue;
      if (convolution.is_normalized) {
        return absl::InvalidArgumentError(absl::StrCat(
            "pattern ", Quoted(patterns[i]), " fits convolution ",
            Quoted(NameOfConv(*convolution.node)), ", which BatchNormalization follows already"));
      }
      fitted[i] = true;
      wanted = true;
    }
    if (!wanted) continue;
    norms.push_back({place, NameOfConv(*convolution.node), convolution.node->output(0),
                     convolution.weight->shape.dim(0), convolution.weight->shape.rank()});
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (fitted[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "pattern ", Quoted(patterns[i]), " fits no convolution of ", file.Label(),
        " that can be normalized: by name of node, output, weight or module, in float32 or "
        "float64, with a weight that is a tensor of the file"));
  }
  if (!norms.empty()) return norms;
  return absl::InvalidArgumentError(
      absl::StrCat(file.Label(),
                   " has no convolution that an exporter has left a trace of folding "
                   "at; unfold-bn=PATTERN names convolutions"));
}

absl::StatusOr<ModelFile> UnfoldNorms(ModelFile file, const std::vector<FoldedNorm>& norms,
                                      const std::map<std::string, ChannelStatistics>& statistics) {
  const TensorUses uses(file);
  Unfolder unfolder(uses, statistics);
  for (const FoldedNorm& norm : norms) {
    const absl::Status unfolded = unfolder.Unfold(norm);
    if (!unfolded.ok()) {
      return Annotate(unfolded, absl::StrCat("convolution ", Quoted(norm.convolution)));
    }
  }
  unfolder.DropBiases();
  const FileEdit edit = unfolder.TakeEdit();
  return ApplyEdit(file, edit);
}

}  // namespace weft
