#include "onnx_import/testing/test_models.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"
#include "platform/status_macros.h"

namespace weft::testing {

onnx::ModelProto ModelFromText(const std::string& text) {
  ::onnx::ModelProto parsed;
  const auto status = ::onnx::OnnxParser::Parse(parsed, text.c_str());
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage() << "\n" << text;
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(parsed.SerializeAsString()));
  return model;
}

onnx::ModelProto ModelOf(int opset, const std::string& body) {
  return ModelFromText(
      absl::StrCat("<ir_version: 8, opset_import: [\"\" : ", opset, ", \"test\" : 1]>\n", body));
}

absl::StatusOr<ImportedModel> Import(const onnx::ModelProto& model, const ImportOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const ModelFile file,
                        ModelFile::Parse(model.SerializeAsString(), "test.onnx"));
  return ImportModel(file, options);
}

std::string ImportError(const onnx::ModelProto& model) {
  const absl::StatusOr<ImportedModel> imported = Import(model);
  EXPECT_FALSE(imported.ok()) << imported->graph.DebugString();
  return std::string(imported.status().message());
}

std::string CorporaFolder() {
  const char* folder = std::getenv("WEFT_CORPORA");
  return folder == nullptr ? "" : folder;
}

}  // namespace weft::testing
