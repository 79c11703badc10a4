#include <ostream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "ops/custom/op_library.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"
#include "tools/commands/command.h"
#include "tools/flags/options.h"
#include "tools/models/op_check.h"

namespace weft {
namespace {

// "2x3,3" as shapes; "" as a scalar's.
absl::StatusOr<std::vector<Shape>> ParseShapes(const std::string& text) {
  std::vector<Shape> shapes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    std::vector<int64_t> dims;
    for (const absl::string_view size : absl::StrSplit(part, 'x', absl::SkipEmpty())) {
      if (!absl::SimpleAtoi(size, &dims.emplace_back())) {
        return UsageError(
            absl::StrCat("--shapes '", text, "': '", size, "' is no size (say 2x3,3)"));
      }
    }
    auto shape = Shape::Create(dims);
    if (!shape.ok()) return UsageError(absl::StrCat("--shapes: ", shape.status().message()));
    shapes.push_back(*std::move(shape));
  }
  return shapes;
}

template <typename T, typename Parse>
bool ParseList(const std::string& text, Parse parse, std::vector<T>& values) {
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    if (!parse(part, &values.emplace_back())) return false;
  }
  return true;
}

bool ParseInt(absl::string_view text, int64_t* value) { return absl::SimpleAtoi(text, value); }
bool ParseFloat(absl::string_view text, float* value) { return absl::SimpleAtof(text, value); }

// The text as what the op declares the attribute to be.
absl::StatusOr<Attribute> ParseAttribute(const WeftAttributeDeclaration& declared,
                                         const std::string& text) {
  std::vector<int64_t> ints;
  std::vector<float> floats;
  switch (declared.type) {
    case WEFT_STRING:
      return text;
    case WEFT_INT:
      if (ParseList(text, ParseInt, ints) && ints.size() == 1) return ints[0];
      break;
    case WEFT_FLOAT:
      if (ParseList(text, ParseFloat, floats) && floats.size() == 1) return floats[0];
      break;
    case WEFT_INTS:
      if (ParseList(text, ParseInt, ints)) return ints;
      break;
    default:
      if (ParseList(text, ParseFloat, floats)) return floats;
  }
  return UsageError(absl::StrCat("--attr ", declared.name, "=", text,
                                 ": the op declares the attribute as another type"));
}

class OpCommand final : public Command {
 public:
  std::string name() const override { return "op"; }
  std::string summary() const override {
    return "Checks the custom ops of a library: shapes, memory, races, gradients, sharding";
  }
  std::string usage() const override { return "check LIBRARY.so"; }
  std::vector<std::string> examples() const override {
    return {"graph_runner op check swiglu.so", "graph_runner op check swiglu.so --op SwiGluGrad",
            "graph_runner op check conv.so --shapes 1x3x8x8,4x3x3x3 --attr group=1"};
  }
  bool reads_models() const override { return false; }

  void AddOptions(CLI::App& app) override {
    app.add_option("ACTION", action_, "check")
        ->type_name("check")
        ->required()
        ->check(CLI::IsMember({"check"}));
    app.add_option("LIBRARY", library_, "a library of custom ops (docs/custom-ops.md)")
        ->type_name("LIBRARY.so")
        ->required();
    app.add_option("--op", op_, "check only this op (default: all)")->type_name("NAME");
    app.add_option("--shapes", shapes_,
                   "shapes of the inputs (default: random ones that fit the sharding notation)")
        ->type_name("2x3,3");
    app.add_option("--attr", attributes_, "set an attribute of the op")->type_name("NAME=VALUE");
    app.add_option("--seed", options_.seed, "seed of the random inputs and orders (default 1)")
        ->type_name("N");
    app.add_option("--cases", options_.cases, "number of shapes to try (default 4)")
        ->type_name("N")
        ->check(AtLeastOne);
    AddOutputFormat(app, format_);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    if (!shapes_.empty()) {
      WEFT_ASSIGN_OR_RETURN(options_.input_shapes, ParseShapes(shapes_));
    }
    const auto library = LoadOpLibrary(RealFileSystem(), library_);
    if (!library.ok()) return WithExitCode(library.status(), ExitCode::kPlan);
    WEFT_ASSIGN_OR_RETURN(const std::vector<const WeftOpDescriptor*> ops, ChosenOps(*library));
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    int findings = 0;
    for (const WeftOpDescriptor* op : ops) {
      WEFT_ASSIGN_OR_RETURN(options_.attributes, ParseAttributes(*op));
      for (const OpCheckResult& result : CheckCustomOp(*op, options_)) {
        findings += result.status.ok() ? 0 : 1;
        Report(*op, result, rows, console);
      }
    }
    if (format_ == "json") {
      *console.out << rows.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      *console.out << (findings == 0 ? "no finding" : absl::StrCat("findings: ", findings)) << "\n";
    }
    return findings == 0 ? ExitCode::kOk : ExitCode::kInternal;
  }

 private:
  static std::string FullName(const WeftOpDescriptor& op) {
    return absl::StrCat(op.domain, "::", op.name);
  }

  absl::StatusOr<std::vector<const WeftOpDescriptor*>> ChosenOps(const OpLibrary& library) const {
    std::vector<const WeftOpDescriptor*> ops;
    for (const std::string& name : library.ops) {
      const size_t colons = name.find("::");
      const WeftOpDescriptor* const op =
          FindCustomOp(name.substr(0, colons), name.substr(colons + 2));
      if (op == nullptr) return absl::InternalError(absl::StrCat("op '", name, "' is lost"));
      if (op_.empty() || op_ == name || op_ == op->name) ops.push_back(op);
    }
    if (ops.empty()) {
      return UsageError(
          absl::StrCat("the library has no op '", op_, "'", DidYouMean(op_, library.ops)));
    }
    return ops;
  }

  // Of those given, what the op declares; InvalidArgument for one that no op does.
  absl::StatusOr<Attributes> ParseAttributes(const WeftOpDescriptor& op) const {
    Attributes attributes;
    for (const std::string& text : attributes_) {
      const size_t equals = text.find('=');
      const std::string name = text.substr(0, equals);
      const WeftAttributeDeclaration* declared = nullptr;
      for (int32_t k = 0; k < op.num_attributes; ++k) {
        if (name == op.attributes[k].name) declared = &op.attributes[k];
      }
      if (equals == std::string::npos || declared == nullptr) {
        return UsageError(
            absl::StrCat("--attr '", text, "': op ", FullName(op),
                         " declares no such attribute (NAME=VALUE; choose it with --op)"));
      }
      WEFT_ASSIGN_OR_RETURN(Attribute value, ParseAttribute(*declared, text.substr(equals + 1)));
      attributes.Set(name, std::move(value));
    }
    return attributes;
  }

  void Report(const WeftOpDescriptor& op, const OpCheckResult& result, nlohmann::ordered_json& rows,
              Console& console) const {
    const char* const outcome = !result.status.ok() ? "FAILED" : result.skipped ? "skipped" : "ok";
    const std::string message(result.status.message());
    if (format_ == "json") {
      rows.push_back({{"op", FullName(op)},
                      {"check", result.check},
                      {"outcome", outcome},
                      {"what", result.what},
                      {"finding", message}});
      return;
    }
    *console.out << Printable(FullName(op)) << "  " << result.check << "  " << outcome << "  "
                 << Printable(result.what) << "\n";
    if (!message.empty()) *console.out << "  " << Printable(message) << "\n";
  }

  std::string action_;
  std::string library_;
  std::string op_;
  std::string shapes_;
  std::vector<std::string> attributes_;
  OpCheckOptions options_;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewOpCommand() { return std::make_unique<OpCommand>(); }

}  // namespace weft
