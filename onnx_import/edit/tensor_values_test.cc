#include "onnx_import/edit/tensor_values.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {
namespace {

// Larger than a window and than a tile, and no multiple of either.
constexpr int64_t kRows = 700;
constexpr int64_t kColumns = 1601;

class TensorValuesTest : public ::testing::Test {
 protected:
  void Store(const std::string& name, int64_t rows, int64_t columns,
             const std::vector<float>& values) {
    onnx::TensorProto& tensor = *model_.mutable_graph()->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(static_cast<int>(DType::kFloat32));
    tensor.add_dims(rows);
    tensor.add_dims(columns);
    tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  }
  // Of tensor 0, and of tensors 0 and 1.
  void Load() {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(17);
    model_.mutable_graph()->set_name("g");
    file_ = ModelFile::Parse(model_.SerializeAsString(), "m.onnx").value();
    uses_.emplace(file_);
  }
  bool AllEqual() { return TensorValues(file_).AllEqual(uses_->tensors()[0]); }
  TensorMatch Compare() {
    return TensorValues(file_).Compare(uses_->tensors()[0], uses_->tensors()[1]);
  }

  onnx::ModelProto model_;
  ModelFile file_;
  std::optional<TensorUses> uses_;
};

std::vector<float> Numbers() {
  std::vector<float> numbers(kRows * kColumns);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 7919 % 104729);
  return numbers;
}

std::vector<float> Transposed(const std::vector<float>& a) {
  std::vector<float> b(a.size());
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      b[static_cast<size_t>(j * kRows + i)] = a[static_cast<size_t>(i * kColumns + j)];
    }
  }
  return b;
}

TEST_F(TensorValuesTest, EqualElementsAreSeenUpToTheLast) {
  Store("ones", kRows, kColumns, std::vector<float>(kRows * kColumns, 1));
  Load();
  EXPECT_TRUE(AllEqual());
}

TEST_F(TensorValuesTest, TheLastElementMayDiffer) {
  std::vector<float> values(kRows * kColumns, 1);
  values.back() = 2;
  Store("w", kRows, kColumns, values);
  Load();
  EXPECT_FALSE(AllEqual());
}

TEST_F(TensorValuesTest, ComparesEachWindow) {
  std::vector<float> numbers = Numbers();
  Store("a", kRows, kColumns, numbers);
  Store("b", kRows, kColumns, numbers);
  Load();
  EXPECT_EQ(Compare(), TensorMatch::kEqual);
}

TEST_F(TensorValuesTest, OneNumberMakesTwoTensors) {
  std::vector<float> numbers = Numbers();
  Store("a", kRows, kColumns, numbers);
  numbers.back() += 1;
  Store("b", kRows, kColumns, numbers);
  Load();
  EXPECT_EQ(Compare(), TensorMatch::kNone);
}

TEST_F(TensorValuesTest, ComparesEachTileOfATransposed) {
  Store("a", kRows, kColumns, Numbers());
  Store("b", kColumns, kRows, Transposed(Numbers()));
  Load();
  EXPECT_EQ(Compare(), TensorMatch::kTransposed);
}

TEST_F(TensorValuesTest, OneNumberOfTheLastTileMakesItNoTransposed) {
  std::vector<float> transposed = Transposed(Numbers());
  transposed.back() += 1;
  Store("a", kRows, kColumns, Numbers());
  Store("b", kColumns, kRows, transposed);
  Load();
  EXPECT_EQ(Compare(), TensorMatch::kNone);
}

}  // namespace
}  // namespace weft
