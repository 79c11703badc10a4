#include "tools/commands/gradient_reasons.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/op_support.h"

namespace weft {
namespace {

struct Reason {
  const char* text;
  std::vector<const char*> operators;
};

const std::vector<Reason>& Reasons() {
  static const auto* const reasons = new std::vector<Reason>{
      {"truth values",
       {"And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not",
        "OptionalHasElement", "Or", "RegexFullMatch", "Xor"}},
      {"bits of whole numbers",
       {"BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"}},
      {"positions and counts",
       {"ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "SequenceLength", "Shape", "Size"}},
      {"constant between its steps",
       {"Binarizer", "Ceil", "Floor", "Hardmax", "Round", "Sign", "TreeEnsemble",
        "TreeEnsembleClassifier", "TreeEnsembleRegressor"}},
      {"random",
       {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
        "RandomUniformLike"}},
      {"made of sizes, positions or attributes alone",
       {"BlackmanWindow", "ConstantOfShape", "EyeLike", "HammingWindow", "HannWindow",
        "MelWeightMatrix", "OneHot", "Range", "SequenceEmpty"}},
      {"whole numbers",
       {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
        "QuantizeLinear", "QLinearAdd", "QLinearAveragePool", "QLinearConcat",
        "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid",
        "QLinearSoftmax", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"}},
      {"text", {"StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"}},
      {"encoded images", {"ImageDecoder"}},
      {"labels and lookups",
       {"CastMap", "CategoryMapper", "DictVectorizer", "LabelEncoder", "OneHotEncoder", "ZipMap"}},
      {"the standard says so", {"Unique"}},
      {"optimizers end a step", {"Adagrad", "Adam", "Momentum"}},
      {"features are made whole before training", {"Imputer"}},
      // Missing.
      {"trained elsewhere, with fixed coefficients",
       {"LinearClassifier", "SVMClassifier", "SVMRegressor"}},
      {"replaced by the gradients that it names before a graph is differentiated", {"Gradient"}},
  };
  return *reasons;
}

}  // namespace

std::string_view ReasonForNoGradient(const std::string& full_name) {
  static const auto* const by_name = [] {
    auto* names = new std::map<std::string, const char*>();
    for (const Reason& reason : Reasons()) {
      for (const char* name : reason.operators) (*names)[name] = reason.text;
    }
    return names;
  }();
  const size_t domain_end = full_name.rfind("::");
  const std::string name =
      domain_end == std::string::npos ? full_name : full_name.substr(domain_end + 2);
  const auto found = by_name->find(name);
  return found == by_name->end() ? std::string_view() : std::string_view(found->second);
}

std::string GradientText(const OpSchema& schema) {
  const TrainSupport support = TrainSupportOf(schema);
  const std::string_view reason = ReasonForNoGradient(schema.FullName());
  // What it expands to may lack a rule.
  const bool expands = support == TrainSupport::kExpanded && reason.empty();
  if (support == TrainSupport::kRule || expands) return std::string(TrainSupportName(support));
  const char* const kind = support == TrainSupport::kNone ? "none" : "missing";
  return reason.empty() ? kind : absl::StrCat(kind, ": ", std::string(reason));
}

}  // namespace weft
