// Ops on strings.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Larger outputs than this per row come from damaged files.
constexpr int64_t kMaxGramIndex = int64_t{1} << 31;

absl::Status InferStringNormalizer(InferenceContext& context) {
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) {
    context.SetOutput(0, DType::kString, SymbolicShape());
    return absl::OkStatus();
  }
  if (input.rank() != 1 && input.rank() != 2) {
    return context.Error(
        absl::StrCat("input 0 has shape ", input.ToString(), ", expected [C] or [1,C]"));
  }
  std::vector<Dim> dims = {Dim()};
  if (input.rank() == 2) dims.insert(dims.begin(), Dim(1));
  context.SetOutput(0, DType::kString, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

absl::Status InferStringConcat(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastInputs(context, {0, 1}));
  context.SetOutput(0, DType::kString, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferStringSplit(InferenceContext& context) {
  const SymbolicShape& input = context.InputShape(0);
  SymbolicShape parts;
  if (input.has_rank()) {
    std::vector<Dim> dims = input.dims();
    dims.emplace_back();
    parts = SymbolicShape(std::move(dims));
  }
  context.SetOutput(0, DType::kString, std::move(parts));
  context.SetOutput(1, DType::kInt64, input);
  return absl::OkStatus();
}

absl::Status InferRegexFullMatch(InferenceContext& context) {
  context.SetOutput(0, DType::kBool, context.InputShape(0));
  return absl::OkStatus();
}

absl::Status InferTfIdfVectorizer(InferenceContext& context) {
  const std::vector<int64_t> indexes = context.attributes().Ints("ngram_indexes");
  if (indexes.empty()) return context.Error("attribute ngram_indexes is empty");
  const auto [min_index, max_index] = std::minmax_element(indexes.begin(), indexes.end());
  if (*min_index < 0 || *max_index > kMaxGramIndex) {
    return context.Error(absl::StrCat("attribute ngram_indexes has values from ", *min_index,
                                      " to ", *max_index, ", expected 0 to 2^31"));
  }
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) {
    context.SetOutput(0, DType::kFloat32, SymbolicShape());
    return absl::OkStatus();
  }
  if (input.rank() > 2) {
    return context.Error(
        absl::StrCat("input 0 has shape ", input.ToString(), ", expected [C] or [N,C]"));
  }
  std::vector<Dim> dims = {Dim(*max_index + 1)};
  if (input.rank() == 2) dims.insert(dims.begin(), input.dim(0));
  context.SetOutput(0, DType::kFloat32, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("StringNormalizer")
                     .Input("X", {DType::kString})
                     .Output("Y")
                     .Attr("case_change_action", AttributeType::kString)
                     .Attr("is_case_sensitive", AttributeType::kInt)
                     .Attr("locale", AttributeType::kString)
                     .Attr("stopwords", AttributeType::kStrings)
                     .Infer(InferStringNormalizer)
                     .NoGradient("text"));
WEFT_REGISTER_OP(OpSchema::Onnx("StringConcat")
                     .Input("X", {DType::kString})
                     .Input("Y", {DType::kString})
                     .Output("Z")
                     .Infer(InferStringConcat)
                     .NoGradient("text"));
WEFT_REGISTER_OP(OpSchema::Onnx("StringSplit")
                     .Input("X", {DType::kString})
                     .Output("Y")
                     .Output("Z")
                     .Attr("delimiter", AttributeType::kString)
                     .Attr("maxsplit", AttributeType::kInt)
                     .Infer(InferStringSplit)
                     .NoGradient("text"));
WEFT_REGISTER_OP(OpSchema::Onnx("RegexFullMatch")
                     .Input("X", {DType::kString})
                     .Output("Y")
                     .Attr("pattern", AttributeType::kString)
                     .Infer(InferRegexFullMatch)
                     .NoGradient("truth values"));
WEFT_REGISTER_OP(OpSchema::Onnx("TfIdfVectorizer")
                     .Input("X", {DType::kString, DType::kInt32, DType::kInt64})
                     .Output("Y")
                     .Attr("max_gram_length", AttributeType::kInt, /*required=*/true)
                     .Attr("max_skip_count", AttributeType::kInt, /*required=*/true)
                     .Attr("min_gram_length", AttributeType::kInt, /*required=*/true)
                     .Attr("mode", AttributeType::kString, /*required=*/true)
                     .Attr("ngram_counts", AttributeType::kInts, /*required=*/true)
                     .Attr("ngram_indexes", AttributeType::kInts, /*required=*/true)
                     .Attr("pool_int64s", AttributeType::kInts)
                     .Attr("pool_strings", AttributeType::kStrings)
                     .Attr("weights", AttributeType::kFloats)
                     .Infer(InferTfIdfVectorizer)
                     .NoGradient("text"));

}  // namespace
}  // namespace weft
