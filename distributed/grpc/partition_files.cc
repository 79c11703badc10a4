#include "distributed/grpc/partition_files.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "distributed/grpc/partition.pb.h"
#include "distributed/grpc/partition_codec.h"
#include "graph/schedule/partition_verifier.h"
#include "onnx_import/graph_wire.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

constexpr char kHeading[] =
    "# What one rank runs in one kind of step. distributed/grpc/partition.proto has the fields;\n"
    "# begin, micro and end name graphs in files beside this one.\n";

std::string PathOf(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, "/", name);
}

// TextFormat puts each field on a line of its own and leaves zeros out. Here an entry of a list is
// one line, with all its fields.
class PartitionPrinter {
 public:
  PartitionPrinter() { printer_.SetUseUtf8StringEscaping(true); }

  std::string Print(const Message& message, const char* between) const {
    std::string text;
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      AppendField(message, *message.GetDescriptor()->field(i), between, text);
    }
    return text;
  }

 private:
  void AppendField(const Message& message, const FieldDescriptor& field, const char* between,
                   std::string& text) const {
    const google::protobuf::Reflection& reflection = *message.GetReflection();
    const bool is_message = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    const int count = field.is_repeated() ? reflection.FieldSize(message, &field) : 1;
    const bool in_brackets = field.is_repeated() && field.is_packable();
    if (in_brackets) absl::StrAppend(&text, field.name(), ": [");
    for (int i = 0; i < count; ++i) {
      std::string value;
      if (is_message) {
        const Message& entry = field.is_repeated()
                                   ? reflection.GetRepeatedMessage(message, &field, i)
                                   : reflection.GetMessage(message, &field);
        absl::StrAppend(&text, field.name(), " { ", Print(entry, " "), "}", between);
        continue;
      }
      printer_.PrintFieldValueToString(message, &field, field.is_repeated() ? i : -1, &value);
      if (in_brackets) {
        absl::StrAppend(&text, i > 0 ? ", " : "", value);
      } else {
        absl::StrAppend(&text, field.name(), ": ", value, between);
      }
    }
    if (in_brackets) absl::StrAppend(&text, "]", between);
  }

  TextFormat::Printer printer_;
};

// The first error of a text, with its place.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(std::string path) : path_(std::move(path)) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat(path_, ":", line + 1, ":", column + 1, ": ", message));
  }
  // What the parser refused without a word is an error, too.
  absl::Status status() const {
    if (!status_.ok()) return status_;
    return absl::InvalidArgumentError(absl::StrCat(path_, ": is no text of a partition"));
  }

 private:
  const std::string path_;
  absl::Status status_;
};

// Writes graphs beside the text.
class GraphWriter {
 public:
  GraphWriter(FileSystem& files, const std::string& folder) : files_(files), folder_(folder) {}

  // The name of the graph's file; "" for a graph with nothing in it, which has none.
  absl::StatusOr<std::string> Write(const Graph& graph, const std::string& name) {
    WEFT_ASSIGN_OR_RETURN(const std::string bytes, EncodePartitionGraph(graph));
    WEFT_ASSIGN_OR_RETURN(const std::string nothing, EncodePartitionGraph(Graph()));
    if (bytes == nothing) return std::string();
    WEFT_RETURN_IF_ERROR(files_.WriteFileAtomically(PathOf(folder_, name), bytes));
    ++written_;
    return name;
  }
  int written() const { return written_; }

 private:
  FileSystem& files_;
  const std::string& folder_;
  int written_ = 0;
};

// Reads the graphs that a text names.
class GraphReader {
 public:
  GraphReader(FileSystem& files, const std::string& folder) : files_(files), folder_(folder) {}

  absl::StatusOr<Graph> Read(const std::string& field, const std::string& name) {
    if (name.empty()) return Graph();
    const bool is_plain = std::all_of(name.begin(), name.end(), [](char letter) {
      return absl::ascii_isalnum(letter) || letter == '-' || letter == '_' || letter == '.';
    });
    if (!is_plain || name.front() == '.') {
      return InText(absl::StrCat(field, " is '", name,
                                 "'; expected the name of a file beside it, as end.onnx"));
    }
    if (!names_.insert(name).second) {
      return InText(absl::StrCat(field, " names '", name, "', which another field names, too"));
    }
    absl::StatusOr<std::shared_ptr<const MappedFile>> file = files_.MapFileBeneath(folder_, name);
    if (!file.ok()) return Annotate(file.status(), absl::StrCat(field, " of a partition"));
    const auto* const bytes = reinterpret_cast<const char*>((*file)->data());
    absl::StatusOr<Graph> graph = GraphFromOnnx(std::string_view(bytes, (*file)->size()));
    if (!graph.ok()) return Annotate(graph.status(), PathOf(folder_, name));
    return graph;
  }

 private:
  absl::Status InText(const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(PathOf(folder_, kPartitionTextName), ": ", what));
  }

  FileSystem& files_;
  const std::string& folder_;
  std::set<std::string> names_;
};

}  // namespace

absl::StatusOr<int> WritePartitionFiles(FileSystem& files, const std::string& folder,
                                        const Partition& partition) {
  WEFT_RETURN_IF_ERROR(files.CreateDirectories(folder));
  rpc::PartitionProto proto;
  EncodePartitionFields(partition, proto);
  GraphWriter graphs(files, folder);
  WEFT_ASSIGN_OR_RETURN(*proto.mutable_begin(), graphs.Write(partition.begin, "begin.onnx"));
  for (size_t i = 0; i < partition.micro.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(*proto.add_micro(),
                          graphs.Write(partition.micro[i], absl::StrCat("micro-", i, ".onnx")));
  }
  WEFT_ASSIGN_OR_RETURN(*proto.mutable_end(), graphs.Write(partition.end, "end.onnx"));
  WEFT_RETURN_IF_ERROR(
      files.WriteFileAtomically(PathOf(folder, kPartitionTextName),
                                absl::StrCat(kHeading, PartitionPrinter().Print(proto, "\n"))));
  return graphs.written() + 1;
}

absl::StatusOr<Partition> ReadPartitionFiles(FileSystem& files, const std::string& folder) {
  const std::string path = PathOf(folder, kPartitionTextName);
  WEFT_ASSIGN_OR_RETURN(const std::string text, files.ReadFile(path));
  FirstError error(path);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  rpc::PartitionProto proto;
  if (!parser.ParseFromString(text, &proto)) return error.status();
  absl::StatusOr<Partition> partition = DecodePartitionFields(proto);
  if (!partition.ok()) return Annotate(partition.status(), path);
  GraphReader graphs(files, folder);
  WEFT_ASSIGN_OR_RETURN(partition->begin, graphs.Read("begin", proto.begin()));
  for (const std::string& name : proto.micro()) {
    WEFT_ASSIGN_OR_RETURN(Graph graph, graphs.Read("micro", name));
    partition->micro.push_back(std::move(graph));
  }
  WEFT_ASSIGN_OR_RETURN(partition->end, graphs.Read("end", proto.end()));
  WEFT_RETURN_IF_ERROR(Annotate(VerifyPartition(*partition), folder));
  return partition;
}

}  // namespace weft
