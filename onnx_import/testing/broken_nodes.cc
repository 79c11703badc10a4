// Models whose nodes, sizes and tensors are broken.
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/testing/broken_models.h"
#include "tensor/dtype.h"

namespace weft::testing {
namespace {

// A row of a table: a graph in ONNX's text, which ends in a value y, what to do to it, and what the
// message must say.
struct Row {
  const char* name;
  const char* graph;  // inputs, initializers and nodes; "" where x is the only input
  std::vector<std::string> parts;
  FoundBy found_by = FoundBy::kImport;
};

// `text` is the nodes, or with a first '<' the initializers in front of them.
std::string GraphText(const std::string& text) {
  const bool has_tensors = text.front() == '<';
  return absl::StrCat("agraph (float[N,4] x) => (float[M] y) ",
                      has_tensors ? text : absl::StrCat("{", text, "}"));
}

void AddRows(std::vector<BrokenModel>& models, const std::vector<Row>& rows, int opset = 17) {
  for (const Row& row : rows) {
    models.push_back({row.name,
                      NamedModel(GraphText(row.graph), opset).SerializeAsString(),
                      row.found_by,
                      row.parts,
                      {}});
  }
}

void AddModel(std::vector<BrokenModel>& models, const std::string& name,
              const onnx::ModelProto& model, std::vector<std::string> parts) {
  models.push_back({name, model.SerializeAsString(), FoundBy::kImport, std::move(parts), {}});
}

onnx::TensorProto TensorOf(DType dtype, const std::vector<int64_t>& dims) {
  onnx::TensorProto tensor;
  tensor.set_data_type(static_cast<int>(dtype));
  for (const int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

void AddTensor(std::vector<BrokenModel>& models, const std::string& name, DType dtype,
               const std::vector<int64_t>& dims,
               const std::function<void(onnx::TensorProto&)>& change,
               std::vector<std::string> parts) {
  onnx::TensorProto tensor = TensorOf(dtype, dims);
  change(tensor);
  parts.push_back("initializer 'w'");
  AddModel(models, name, ModelWithTensor(std::move(tensor)), std::move(parts));
}

onnx::ModelProto ModelWithSparse(const std::vector<int64_t>& dims,
                                 const std::vector<int64_t>& indices) {
  onnx::ModelProto model = NamedModel("agraph (float[N,4] x) => (float[N,4] y) { y = Add(x, w) }");
  model.mutable_graph()->mutable_node(0)->set_input(1, std::string("w"));
  onnx::SparseTensorProto& sparse = *model.mutable_graph()->add_sparse_initializer();
  for (const int64_t dim : dims) sparse.add_dims(dim);
  *sparse.mutable_values() = TensorOf(DType::kFloat32, {2});
  sparse.mutable_values()->set_name("w");
  sparse.mutable_values()->add_float_data(1);
  sparse.mutable_values()->add_float_data(2);
  *sparse.mutable_indices() = TensorOf(DType::kInt64, {static_cast<int64_t>(indices.size())});
  for (const int64_t index : indices) sparse.mutable_indices()->add_int64_data(index);
  return model;
}

BrokenModel WithExternal(const std::string& name,
                         const std::vector<std::pair<std::string, std::string>>& entries,
                         std::vector<std::string> parts) {
  onnx::TensorProto tensor = TensorOf(DType::kFloat32, {4});
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] : entries) {
    onnx::StringStringEntryProto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }
  parts.push_back("initializer 'w'");
  return {name,
          ModelWithTensor(std::move(tensor)).SerializeAsString(),
          FoundBy::kImport,
          std::move(parts),
          {{"weights", std::string(16, '\0'), ""},
           {"short", std::string(12, '\0'), ""},
           {"link", "", "/etc/hostname"},
           {"folder_link", "", "/etc"}}};
}

// Operators and attributes.
std::vector<Row> OperatorRows() {
  return {
      {"UnknownOperator",
       "y = Reluu(x)",
       {"node0", "Reluu", "did you mean Relu?"},
       FoundBy::kCheck},
      {"OperatorOfAnUnknownDomain", "y = test.Foo(x)", {"node0", "test::Foo"}, FoundBy::kCheck},
      {"DomainThatIsNotImported",
       "y = acme.Foo(x)",
       {"node 'node0' (Foo)", "imports no operator set 'acme'"}},
      {"MissingInput", "y = Add(x)", {"node 'node0' (Add): lacks the required input 1 ('B')"}},
      {"TooManyInputs", "y = Relu(x, x)", {"node 'node0' (Relu): has 2 inputs"}},
      {"AttributeOfAnotherType",
       "y = Softmax<axis = 1.5>(x)",
       {"node 'node0' (Softmax): attribute 'axis' is of type float, expected int"}},
      {"UnknownAttribute",
       "y = Relu<axes = [1]>(x)",
       {"node 'node0' (Relu): has the attribute 'axes', which Relu does not know"}},
      {"AttributeThatLacks",
       "y = Cast(x)",
       {"node 'node0' (Cast): lacks the required attribute 'to' (int)"}},
      {"AxisOutside",
       "y = Concat<axis = 5>(x, x)",
       {"node 'node0' (Concat) with inputs (float32[N,4], float32[N,4])", "axis 5"}},
  };
}

// Operands that do not fit.
std::vector<Row> OperandRows() {
  return {
      {"OperandsOfTwoTypes",
       "<int64[4] w = {1,2,3,4}> { y = Add(x, w) }",
       {"node 'node0' (Add)", "input 1 is int64 and an earlier one float32"}},
      {"TypeThatTheOperatorLacks",
       "<bool[4] w = {1,1,1,1}> { y = MatMul(x, w) }",
       {"node 'node0' (MatMul): input 1 ('B') is bool"}},
      {"ShapesThatDoNotBroadcast",
       "<float[3] w = {1,2,3}> { y = Add(x, w) }",
       {"node 'node0' (Add)", "the shapes do not broadcast"}},
      {"ProductOfOtherSizes",
       "<float[2,2] w = {1,2,3,4}> { y = MatMul(x, w) }",
       {"node 'node0' (MatMul)", "axes of sizes 4 and 2"}},
      {"TensorForASequence",
       "<int64 i = {0}> { y = SequenceAt(x, i) }",
       {"node 'node0' (SequenceAt)", "expected a sequence"}},
      {"SequenceForATensor",
       "s = SequenceConstruct(x)  y = Relu(s)",
       {"node 'node1' (Relu): input 0 ('X') is sequence(float32[N,4])"}},
      {"SequenceOfTwoTypes",
       "i = Cast<to = 7>(x)  s = SequenceConstruct(x, i)  n = SequenceLength(s)  y = Cast<to = "
       "1>(n)",
       {"node 'node1' (SequenceConstruct", "another dtype"},
       FoundBy::kRun},
      {"IndexOutside",
       "<int64[1] i = {99}> { y = Gather<axis = 1>(x, i) }",
       {"node 'node0' (Gather", "the index at [0] is 99"},
       FoundBy::kRun},
      {"WholeNumbersByZero",
       "i = Cast<to = 6>(x)  q = Div(i, i)  y = Cast<to = 1>(q)",
       {"node 'node1' (Div", "by zero"},
       FoundBy::kRun},
  };
}

// Shapes and sizes that attributes and small tensors ask for.
std::vector<Row> SizeRows() {
  return {
      {"FillOfTwoToThe40",
       "<int64[1] s = {1099511627776}> { y = ConstantOfShape(s) }",
       {"cannot allocate 4398046511", "node 'node0' (ConstantOfShape"},
       FoundBy::kMemory},
      {"FillOfNegativeSize",
       "<int64[1] s = {-3}> { y = ConstantOfShape(s) }",
       {"node 'node0' (ConstantOfShape)", "a dimension of -3"}},
      {"FillThatOverflows",
       "<int64[3] s = {1073741824,1073741824,1073741824}> { y = ConstantOfShape(s) }",
       {"node 'node0' (ConstantOfShape)", "more than 2^63-1 elements"}},
      {"ExpansionOfTwoToThe40",
       "<int64[3] s = {274877906944,1,4}> { y = Expand(x, s) }",
       {"cannot allocate", "node 'node0' (Expand"},
       FoundBy::kMemory},
      {"RepeatsThatOverflow",
       "<int64[2] s = {4611686018427387904,4611686018427387904}> { y = Tile(x, s) }",
       {"node 'node0' (Tile)", "asks for axis 1 of size 4 4611686018427387904 times"}},
      {"RangeOfTwoToThe62",
       "<int64 a = {0}, int64 b = {4611686018427387904}, int64 c = {1}> "
       "{ y = Range(a, b, c) }",
       {"node 'node0' (Range)", "dimension 0"}},
      {"PadOfTwoToThe62",
       "<int64[4] p = {0,0,4611686018427387904,4611686018427387904}> { y = Pad(x, p) }",
       {"node 'node0' (Pad)", "4611686018427387904 on axis 0"}},
      {"TwoMinusOnes",
       "<int64[2] s = {-1,-1}> { y = Reshape(x, s) }",
       {"node 'node0' (Reshape)", "-1 more than once"}},
      {"PartsThatDoNotFit",
       "<int64[2] s = {3,9}> { y, z = Split<axis = 1>(x, s) }",
       {"node 'node0' (Split)", "add up to 12, but the axis to split has 4"}},
  };
}

}  // namespace

onnx::ModelProto ModelWithTensor(onnx::TensorProto tensor) {
  onnx::ModelProto model =
      NamedModel("agraph (float[N,4] x) => (float[N,4] y) <float[1] w = {1}> { y = Add(x, w) }");
  tensor.set_name("w");
  *model.mutable_graph()->mutable_initializer(0) = std::move(tensor);
  return model;
}

void AddBrokenNodes(std::vector<BrokenModel>& models) {
  AddRows(models, OperatorRows());
  AddRows(models, OperandRows());
  onnx::ModelProto model = NamedModel(GraphText("y = Softmax<axis = 1>(x)"));
  onnx::NodeProto& softmax = *model.mutable_graph()->mutable_node(0);
  *softmax.add_attribute() = softmax.attribute(0);
  AddModel(models, "AttributeTwice", model,
           {"node 'node0' (Softmax): attribute 'axis' occurs twice"});
  softmax.mutable_attribute()->RemoveLast();
  softmax.mutable_attribute(0)->set_type(onnx::AttributeProto::STRING);
  AddModel(models, "AttributeThatLies", model,
           {"node 'node0' (Softmax): attribute 'axis': its type is STRING but"});
  AddModel(models, "OutputOfAnotherType",
           NamedModel("agraph (float[N,4] x) => (int64[N,4] y) { y = Relu(x) }"),
           {"graph output 'y' is declared as int64[N,4]", "makes float32[N,4]"});
  model = NamedModel("agraph (float[N,4] x, bool c) => (float[N,4] y) { y = If(c) }");
  onnx::AttributeProto& branch = *model.mutable_graph()->mutable_node(0)->add_attribute();
  branch.set_name("then_branch");
  branch.set_type(onnx::AttributeProto::GRAPH);
  branch.mutable_g()->set_name("then");
  AddModel(models, "BranchThatLacks", model,
           {"node 'node0' (If): lacks the required attribute 'else_branch'"});
}

void AddBrokenSizes(std::vector<BrokenModel>& models) {
  AddRows(models, SizeRows());
  onnx::ModelProto model = NamedModel(GraphText("y = Relu(x)"));
  auto& shape = *model.mutable_graph()
                     ->mutable_input(0)
                     ->mutable_type()
                     ->mutable_tensor_type()
                     ->mutable_shape();
  shape.mutable_dim(0)->set_dim_value(-7);
  AddModel(models, "InputOfNegativeSize", model,
           {"graph input 'x': dimension 0 has size -7, expected 0 to 2^40"});
  shape.mutable_dim(0)->set_dim_value(int64_t{1} << 62);
  AddModel(models, "InputOfTwoToThe62", model,
           {"graph input 'x': dimension 0 has size 4611686018427387904"});
  shape.mutable_dim(0)->set_dim_value(int64_t{1} << 40);
  shape.mutable_dim(1)->set_dim_value(int64_t{1} << 40);
  AddModel(models, "InputThatOverflows", model,
           {"node 'node0' (Relu) with inputs", "its output 'y' would be of shape"});
  model = NamedModel(GraphText("y = Relu(x)"));
  onnx::TypeProto* type = model.mutable_graph()->mutable_input(0)->mutable_type();
  for (int i = 0; i < 40; ++i) type = type->mutable_sequence_type()->mutable_elem_type();
  AddModel(models, "SequencesInSequences", model,
           {"graph input 'x'", "40 sequences or optionals in one another"});
}

void AddBrokenPayloads(std::vector<BrokenModel>& models) {
  const auto nothing = [](onnx::TensorProto&) {};
  AddTensor(models, "TwoToThe40ElementsOfNothing", DType::kFloat32, {int64_t{1} << 40}, nothing,
            {"float32[1099511627776] has no data"});
  AddTensor(models, "DimensionsThatOverflow", DType::kFloat32,
            {int64_t{1} << 32, int64_t{1} << 32, 4}, nothing, {"more than 2^63-1 elements"});
  AddTensor(models, "NegativeDimension", DType::kFloat32, {-4}, nothing,
            {"dimension 0 of shape [-4]"});
  AddTensor(models, "HundredThousandDimensions", DType::kFloat32, std::vector<int64_t>(100'000, 1),
            nothing, {"has 100000 dimensions"});
  AddTensor(models, "RawDataTooShort", DType::kFloat32, {4},
            [](auto& tensor) { tensor.set_raw_data(std::string(15, '\0')); },
            {"raw_data has 15 bytes, expected 16 for float32[4]"});
  AddTensor(models, "IntegersForFloats", DType::kFloat32, {1},
            [](auto& tensor) { tensor.add_int32_data(1); },
            {"float32[1] has its elements in int32_data, expected float_data"});
  AddTensor(models, "StringsInRawBytes", DType::kString, {4},
            [](auto& tensor) { tensor.set_raw_data("abcd"); },
            {"strings has its elements in raw bytes"});
  AddTensor(models, "IntegerTooLarge", DType::kInt8, {1},
            [](auto& tensor) { tensor.add_int32_data(400); },
            {"int32_data[0] is 400, expected -128 to 127"});
  AddTensor(models, "TwoPayloads", DType::kFloat32, {1},
            [](auto& tensor) {
              tensor.add_float_data(1);
              tensor.set_raw_data(std::string(4, '\0'));
            },
            {"has both raw_data and float_data"});
  AddTensor(models, "UnknownElementType", DType::kFloat32, {1},
            [](auto& tensor) { tensor.set_data_type(99); }, {"data_type is 99"});
  AddTensor(models, "Segments", DType::kFloat32, {1},
            [](auto& tensor) { tensor.mutable_segment()->set_begin(0); }, {"stored in segments"});
  // Our own fields, which say where the payload lies that was not parsed.
  onnx::TensorProto tensor = TensorOf(DType::kFloat32, {1});
  tensor.set_file_bytes(4);
  AddModel(models, "PayloadThatIsSaidToBeLeft", ModelWithTensor(tensor),
           {"in a TensorProto: field 100002 is no field of ONNX"});
  tensor.set_file_offset(8);
  AddModel(models, "PayloadThatIsSaidToLieInTheFile", ModelWithTensor(tensor),
           {"in a TensorProto: field 100001 is no field of ONNX"});
  const std::string sparse = "sparse initializer 'w'";
  AddModel(models, "SparseIndexOutside", ModelWithSparse({4}, {0, 9}),
           {sparse, "index 1 of a sparse tensor lies outside its shape [4]"});
  AddModel(models, "SparseIndexNegative", ModelWithSparse({4}, {-1, 0}), {sparse, "index 0"});
  AddModel(models, "SparseIndicesTooMany", ModelWithSparse({4}, {0, 1, 2}),
           {sparse, "expected int64[2]"});
  AddModel(models, "SparseTooLarge", ModelWithSparse({1 << 20, 1 << 20}, {0, 1}),
           {sparse, "dense form"});
}

void AddBrokenExternalData(std::vector<BrokenModel>& models) {
  models.push_back(WithExternal("PathAbove", {{"location", "../weights"}},
                                {"'../weights'", "leaves the folder"}));
  models.push_back(
      WithExternal("PathFromTheRoot", {{"location", "/etc/hostname"}}, {"leaves the folder"}));
  models.push_back(WithExternal("PathThroughALink", {{"location", "link"}}, {"symbolic link"}));
  models.push_back(WithExternal("PathThroughALinkedFolder", {{"location", "folder_link/hostname"}},
                                {"'folder_link/hostname'", "symbolic link"}));
  models.push_back(WithExternal("PathToNothing", {{"location", "gone"}}, {"gone", "No such file"}));
  models.push_back(WithExternal("PathToAFolder", {{"location", "."}}, {"is a folder"}));
  models.push_back(WithExternal("PathWithAZero", {{"location", std::string("weights\0x", 9)}},
                                {"holds a zero byte"}));
  models.push_back(WithExternal("NoPath", {{"offset", "0"}}, {"no location is given"}));
  models.push_back(WithExternal("FileTooShort", {{"location", "short"}},
                                {"is 16 bytes at offset 0, but the file has 12 bytes"}));
  models.push_back(
      WithExternal("OffsetNegative", {{"location", "weights"}, {"offset", "-4"}}, {"offset '-4'"}));
  models.push_back(WithExternal("OffsetThatWraps",
                                {{"location", "weights"}, {"offset", "18446744073709551612"}},
                                {"at offset 18446744073709551612, but the file has 16 bytes"}));
  models.push_back(WithExternal("OffsetOfTwentyTwoDigits",
                                {{"location", "weights"}, {"offset", "9999999999999999999999"}},
                                {"offset '9999999999999999999999'"}));
  models.push_back(WithExternal("LengthThatLies", {{"location", "weights"}, {"length", "17"}},
                                {"has length 17, expected 16 bytes"}));
}

}  // namespace weft::testing
