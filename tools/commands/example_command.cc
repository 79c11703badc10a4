#include <cstdint>
#include <ostream>

#include "nlohmann/json.hpp"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/commands/command.h"
#include "tools/flags/options.h"
#include "tools/models/example_models.h"

namespace weft {
namespace {

class ExampleCommand final : public Command {
 public:
  std::string name() const override { return "example"; }
  std::string summary() const override {
    return "Writes an untrained example model: LeNet or an MLP for 28 x 28 images";
  }
  std::string usage() const override { return "lenet|mlp|swiglu -o FILE.onnx [--seed S]"; }
  std::vector<std::string> examples() const override {
    return {"graph_runner example lenet -o lenet.onnx",
            "graph_runner example mlp -o mlp.onnx --seed 7",
            "graph_runner example lenet -o lenet.onnx && graph_runner inspect lenet.onnx"};
  }

  void AddOptions(CLI::App& app) override {
    app.add_option("MODEL", model_,
                   "the model; its input is x [N,1,28,28], its output logits [N,10]")
        ->type_name("lenet|mlp|swiglu")
        ->required();
    app.add_option("-o,--out", path_, "the file to write")->type_name("FILE.onnx")->required();
    app.add_option("--seed", seed_, "seed of the random weights (default 0)")->type_name("S");
    AddOutputFormat(app, format_);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    const auto bytes = ExampleModelFile(model_, seed_);
    if (!bytes.ok()) return WithExitCode(bytes.status(), ExitCode::kUsage);
    WEFT_RETURN_IF_ERROR(
        WithExitCode(RealFileSystem().WriteFileAtomically(path_, *bytes), ExitCode::kDisk));
    if (format_ == "json") {
      const nlohmann::ordered_json report = {
          {"model", model_}, {"path", path_}, {"bytes", bytes->size()}, {"seed", seed_}};
      *console.out << report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else {
      *console.out << "wrote " << Printable(path_) << " (" << bytes->size() << " bytes, seed "
                   << seed_ << ")\n";
    }
    return ExitCode::kOk;
  }

 private:
  std::string model_;
  std::string path_;
  uint64_t seed_ = 0;
  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Command> NewExampleCommand() { return std::make_unique<ExampleCommand>(); }

}  // namespace weft
