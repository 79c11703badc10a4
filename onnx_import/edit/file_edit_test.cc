// What an edit copies, and what stays where it lies.
#include "onnx_import/edit/file_edit.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/edit/ties.h"
#include "onnx_import/exporter.h"
#include "onnx_import/importer.h"
#include "onnx_import/testing/test_models.h"
#include "platform/testing/fake_file_system.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// [256, 128]: 1, 1.25, ...
onnx::TensorProto Table() {
  onnx::TensorProto tensor;
  tensor.set_name("table");
  tensor.set_data_type(static_cast<int>(DType::kFloat32));
  tensor.add_dims(256);
  tensor.add_dims(128);
  std::vector<float> values(256 * 128);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1 + 0.25f * static_cast<float>(i);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

// A fresh model with one large table, in the file or beside it.
class StoredModel : public ::testing::Test {
 protected:
  void Store(bool external) {
    onnx::ModelProto model = ModelOf(17,
                                     "agraph (float[N, 2] x) => (float[N, 2] y)"
                                     " <float[2] b = {0, 0}, float[2, 2] v = {1, 2, 3, 4},"
                                     "  float[2, 2] w = {5, 6, 7, 8}> {"
                                     "  h = Gemm (x, v, b)  y = Gemm (h, w, b) }");
    *model.mutable_graph()->add_initializer() = Table();
    onnx::NodeProto& gather = *model.mutable_graph()->add_node();
    gather.set_op_type("Gather");
    gather.add_input("table");
    gather.add_input("ids");
    gather.add_output("rows");
    *model.mutable_graph()->add_initializer() = [] {
      onnx::TensorProto ids;
      ids.set_name("ids");
      ids.set_data_type(static_cast<int>(DType::kInt64));
      ids.add_dims(1);
      ids.add_int64_data(0);
      return ids;
    }();
    std::string data;
    if (external) {
      for (onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer()) {
        if (tensor.data_type() == static_cast<int>(DType::kInt64)) continue;
        std::string payload = tensor.raw_data();
        if (payload.empty()) {
          const std::vector<float> values(tensor.float_data().begin(), tensor.float_data().end());
          payload.assign(reinterpret_cast<const char*>(values.data()), 4 * values.size());
        }
        tensor.clear_raw_data();
        tensor.clear_float_data();
        tensor.set_data_location(onnx::TensorProto::EXTERNAL);
        AddEntry(tensor, "location", "w.bin");
        AddEntry(tensor, "offset", std::to_string(data.size()));
        AddEntry(tensor, "length", std::to_string(payload.size()));
        data += payload;
      }
    }
    ASSERT_TRUE(files_.CreateDirectories("/in").ok());
    ASSERT_TRUE(files_.WriteFileAtomically("/in/w.bin", data).ok());
    ASSERT_TRUE(files_.WriteFileAtomically("/in/m.onnx", model.SerializeAsString()).ok());
    size_ = model.ByteSizeLong();
  }

  static void AddEntry(onnx::TensorProto& tensor, const char* key, const std::string& value) {
    onnx::StringStringEntryProto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }

  TiedModel Settle(const TieOptions& options = {}) {
    auto file = ModelFile::Load(files_, "/in/m.onnx");
    EXPECT_TRUE(file.ok()) << file.status();
    auto settled = SettleTies(*std::move(file), options);
    EXPECT_TRUE(settled.ok()) << settled.status();
    return *std::move(settled);
  }

  std::vector<float> Values(const TiedModel& model, const std::string& name) {
    const auto imported = ImportModel(model.file);
    EXPECT_TRUE(imported.ok()) << imported.status();
    const Variable* variable = imported->graph.FindVariable(name);
    if (variable == nullptr) return {};
    const auto values = variable->initial.data<float>();
    return {values.begin(), values.end()};
  }

  FakeFileSystem files_;
  size_t size_ = 0;
};

TEST_F(StoredModel, CopiesOfExternalTensorsReadTheSameBytes) {
  Store(/*external=*/true);
  const TiedModel settled = Settle();
  std::map<std::string, std::string> offsets;
  for (const onnx::TensorProto& tensor : settled.file.proto()->graph().initializer()) {
    if (tensor.external_data_size() > 0) offsets[tensor.name()] = tensor.external_data(1).value();
  }
  EXPECT_EQ(offsets.at("y.C"), offsets.at("b"));
  EXPECT_THAT(Values(settled, "y.C"), ElementsAre(0, 0));
}

TEST_F(StoredModel, LargePayloadsStayInTheFileTheyAreIn) {
  Store(/*external=*/false);
  const TiedModel settled = Settle();
  EXPECT_LT(settled.file.bytes().size() + (size_t{100} << 10), size_);
  const std::vector<float> table = Values(settled, "table");
  ASSERT_THAT(table, SizeIs(256 * 128));
  EXPECT_EQ(table[1000], 251);
  // What is exported has all of them inside again, and nobody needs to know.
  const auto imported = ImportModel(settled.file);
  const auto note = SaveTrained(files_, "/in/out.onnx", *imported, {});
  ASSERT_TRUE(note.ok()) << note.status();
  EXPECT_EQ(*note, "");
  const auto alone = ModelFile::Parse(*files_.ReadFile("/in/out.onnx"), "out.onnx");
  ASSERT_TRUE(alone.ok()) << alone.status();
  const auto back = ImportModel(*alone);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->graph.FindVariable("table")->initial.data<float>()[1000], 251);
  const TiedModel kept = Settle({.keep_payloads = true});
  EXPECT_GT(kept.file.bytes().size(), size_);
}

// What stays in the file costs nothing; what is copied is counted before it is made.
TEST_F(StoredModel, CopiesHaveABudget) {
  Store(/*external=*/false);
  const auto file = ModelFile::Load(files_, "/in/m.onnx");
  ASSERT_TRUE(file.ok()) << file.status();
  const EncodedTensors tensors = FindEncodedTensors(*file);
  const auto table = std::find_if(tensors.initializers.begin(), tensors.initializers.end(),
                                  [](std::string_view one) { return one.size() > 100'000; });
  ASSERT_NE(table, tensors.initializers.end());
  const size_t fitting = CopyBudget::kMinCopyBytes / table->size();
  CopyBudget kept(*file, /*keep_payloads=*/true);
  for (size_t i = 0; i < fitting; ++i) ASSERT_TRUE(kept.Take("table", *table).ok()) << i;
  const absl::Status status = kept.Take("table", *table);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("at tensor 'table' of 128 KiB"));
  CopyBudget left(*file);
  for (size_t i = 0; i < 100 * fitting; ++i) ASSERT_TRUE(left.Take("table", *table).ok()) << i;
}

}  // namespace
}  // namespace weft::testing
