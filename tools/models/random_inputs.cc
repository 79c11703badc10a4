#include "tools/models/random_inputs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "platform/random.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

constexpr int64_t kWholeNumbers = 10;
constexpr int kLettersOfAString = 4;

std::vector<std::string> SymbolsOf(const Graph& graph) {
  std::vector<std::string> symbols;
  for (const ValueId id : graph.inputs()) {
    const SymbolicShape& shape = graph.value(id).type.shape;
    if (!shape.has_rank()) continue;
    for (const Dim& dim : shape.dims()) {
      if (!dim.is_symbol()) continue;
      const std::string symbol(dim.symbol());
      if (std::find(symbols.begin(), symbols.end(), symbol) == symbols.end()) {
        symbols.push_back(symbol);
      }
    }
  }
  return symbols;
}

absl::StatusOr<Shape> ShapeOf(const ValueDef& input, const DimensionSizes& sizes) {
  std::vector<int64_t> dims;
  for (const Dim& dim : input.type.shape.dims()) {
    const auto size = dim.is_symbol() ? sizes.find(std::string(dim.symbol())) : sizes.end();
    dims.push_back(dim.is_known() ? dim.size() : size != sizes.end() ? size->second : 1);
  }
  return Shape::Create(dims);
}

// Whole numbers in [low, low + count), as int64.
absl::StatusOr<Tensor> WholeNumbers(const RandomKey& key, Shape shape, int64_t low, int64_t count) {
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(DType::kInt64, std::move(shape)));
  RandomSequence sequence(key);
  for (int64_t& value : tensor.mutable_data<int64_t>()) {
    value = low + static_cast<int64_t>(sequence.Below(static_cast<uint64_t>(count)));
  }
  return tensor;
}

absl::StatusOr<Tensor> Strings(const RandomKey& key, Shape shape) {
  std::vector<std::string> values(static_cast<size_t>(shape.num_elements()));
  RandomSequence sequence(key);
  for (std::string& value : values) {
    for (int i = 0; i < kLettersOfAString; ++i) {
      value.push_back(static_cast<char>('a' + sequence.Below(26)));
    }
  }
  return Tensor::OfStrings(std::move(shape), std::move(values));
}

absl::StatusOr<Tensor> Floats(const RandomKey& key, Shape shape) {
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(DType::kFloat32, std::move(shape)));
  FillNormal(key, 0, 0.0f, 1.0f, tensor.mutable_data<float>());
  return tensor;
}

bool IsSigned(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kInt4 || dtype == DType::kInt2;
}

}  // namespace

absl::StatusOr<DimensionSizes> ParseDimensionSizes(const std::vector<std::string>& texts,
                                                   const Graph& graph) {
  const std::vector<std::string> symbols = SymbolsOf(graph);
  DimensionSizes sizes;
  for (const std::string& text : texts) {
    for (const absl::string_view part : absl::StrSplit(text, ',')) {
      const size_t equals = part.rfind('=');
      int64_t size = -1;
      if (equals == absl::string_view::npos || equals == 0 ||
          !absl::SimpleAtoi(part.substr(equals + 1), &size) || size < 0 || size > kMaxDim) {
        return absl::InvalidArgumentError(
            absl::StrCat("--dim ", text, ": expected NAME=SIZE, with a size of 0 to 2^40"));
      }
      const std::string name(part.substr(0, equals));
      if (std::find(symbols.begin(), symbols.end(), name) == symbols.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--dim ", text, ": no input has a dimension called '", name, "'; ",
            symbols.empty() ? "all their sizes are fixed"
                            : absl::StrCat("there are: ", absl::StrJoin(symbols, ", ")),
            DidYouMean(name, symbols)));
      }
      if (!sizes.emplace(name, size).second) {
        return absl::InvalidArgumentError(absl::StrCat("--dim gives '", name, "' twice"));
      }
    }
  }
  return sizes;
}

absl::StatusOr<Value> RandomInput(const ValueDef& input, const DimensionSizes& sizes,
                                  uint64_t seed) {
  const ValueType& type = input.type;
  if (type.kind != ValueKind::kTensor || !type.shape.has_rank() || type.dtype == DType::kInvalid) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", input.name, "' is ", type.ToString(),
                     ", and random values are made for tensors of a known rank and type alone: "
                     "add --input ",
                     input.name, "=FILE"));
  }
  WEFT_ASSIGN_OR_RETURN(Shape shape, ShapeOf(input, sizes));
  const RandomKey key(seed, absl::StrCat("input ", input.name));
  if (type.dtype == DType::kString) return Strings(key, std::move(shape));
  absl::StatusOr<Tensor> tensor;
  if (type.dtype == DType::kBool) {
    tensor = WholeNumbers(key, std::move(shape), 0, 2);
  } else if (IsInteger(type.dtype)) {
    const int bits = DTypeBits(type.dtype);
    const int64_t count = bits <= 8 ? int64_t{1} << bits : kWholeNumbers;
    tensor = WholeNumbers(key, std::move(shape), IsSigned(type.dtype) ? -count / 2 : 0, count);
  } else {
    tensor = Floats(key, std::move(shape));
  }
  WEFT_RETURN_IF_ERROR(tensor.status());
  WEFT_ASSIGN_OR_RETURN(Tensor converted, CastTensor(*tensor, type.dtype));
  return Value(std::move(converted));
}

}  // namespace weft
