// SPDX-License-Identifier: Apache-2.0
//
// cwlab fault drop|share|pause|rate|link|swap|clear, cwlab hash.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/lab/cwlab_cli.h"
#include "userspace/lab/fabric.h"

namespace cw::lab {
namespace {

struct FaultOptions {
  int leaf = -1;
  int spine = -1;
  std::string direction = "both";
  std::string match = "all";
  double percent = 0;
  double mbps = 0;
  std::string state;
  int with = -1;  // the other spine
  bool back = false;
};

std::vector<LinkDirection> Links(const FaultOptions& options) {
  std::vector<LinkDirection> links;
  if (options.direction != "down") links.push_back(LinkDirection::LeafToSpine(options.leaf, options.spine));
  if (options.direction != "up") links.push_back(LinkDirection::SpineToLeaf(options.spine, options.leaf));
  return links;
}

Fault::Match MatchOf(const std::string& name) {
  if (name == "data") return Fault::Match::kRoceData;
  return name == "probes" ? Fault::Match::kProbes : Fault::Match::kAll;
}

// Applies one change to each chosen direction and says when each took effect.
void Apply(Cli& cli, const FaultOptions& options, const std::string& what,
           const std::function<absl::StatusOr<int64_t>(Fabric&, const LinkDirection&)>& change) {
  absl::StatusOr<std::unique_ptr<Fabric>> fabric = Fabric::Attach(cli.lab);
  if (!fabric.ok()) return cli.Finish(fabric.status(), {}, "");
  nlohmann::json changes = nlohmann::json::array();
  std::string text;
  for (const LinkDirection& link : Links(options)) {
    absl::StatusOr<int64_t> at = change(**fabric, link);
    if (!at.ok()) return cli.Finish(at.status(), {}, "");
    changes.push_back({{"link", link.Name()}, {"change", what}, {"monotonic_ns", *at}});
    absl::StrAppend(&text, link.Name(), ": ", what, "\n");
  }
  absl::StrAppend(&text, "undo: cwlab fault clear --lab ", cli.lab, "\n");
  cli.Finish(absl::OkStatus(), {{"lab", cli.lab}, {"changes", changes}}, text);
}

void SetLink(Cli& cli, const FaultOptions& options) {
  absl::StatusOr<std::unique_ptr<Fabric>> fabric = Fabric::Attach(cli.lab);
  if (!fabric.ok()) return cli.Finish(fabric.status(), {}, "");
  absl::StatusOr<int64_t> at = (*fabric)->SetLinkUp(options.leaf, options.spine, options.state == "up");
  if (!at.ok()) return cli.Finish(at.status(), {}, "");
  const std::string name = absl::StrCat("leaf", options.leaf, "--spine", options.spine);
  const nlohmann::json change = {{"link", name}, {"change", "link " + options.state}, {"monotonic_ns", *at}};
  cli.Finish(absl::OkStatus(), {{"lab", cli.lab}, {"changes", {change}}},
             absl::StrCat(name, ": link ", options.state, "\n"));
}

void Swap(Cli& cli, const FaultOptions& options) {
  absl::StatusOr<std::unique_ptr<Fabric>> fabric = Fabric::Attach(cli.lab);
  if (!fabric.ok()) return cli.Finish(fabric.status(), {}, "");
  const absl::Status done = (*fabric)->SetCablesSwapped(options.leaf, options.spine, options.with, !options.back);
  const std::string what = absl::StrFormat("cables of leaf%d to spine%d and spine%d: %s", options.leaf, options.spine,
                                           options.with, options.back ? "as planned" : "swapped");
  const std::string undo =
      absl::StrFormat("undo: cwlab fault swap --leaf %d --spine %d --with %d%s --lab %s\n", options.leaf, options.spine,
                      options.with, options.back ? "" : " --back", cli.lab);
  cli.Finish(done, {{"lab", cli.lab}, {"changes", {what}}}, what + "\n" + undo);
}

void Clear(Cli& cli, const FaultOptions& options) {
  if (options.leaf >= 0 && options.spine >= 0) {
    return Apply(cli, options, "no fault",
                 [](Fabric& fabric, const LinkDirection& link) { return fabric.ClearFault(link); });
  }
  if (options.leaf >= 0 || options.spine >= 0) {
    const absl::string_view missing = options.leaf >= 0 ? "--spine" : "--leaf";
    return cli.Finish(absl::InvalidArgumentError(
                          absl::StrCat("name the link with ", missing, ", too; with neither, all faults are cleared")),
                      {}, "");
  }
  absl::StatusOr<std::unique_ptr<Fabric>> fabric = Fabric::Attach(cli.lab);
  if (!fabric.ok()) return cli.Finish(fabric.status(), {}, "");
  cli.Finish((*fabric)->ClearFaults(), {{"lab", cli.lab}, {"cleared", "all"}},
             "all faults cleared, all links up and at their rates\n");
}

void SetHash(Cli& cli, const std::string& name) {
  absl::StatusOr<std::unique_ptr<Fabric>> fabric = Fabric::Attach(cli.lab);
  if (!fabric.ok()) return cli.Finish(fabric.status(), {}, "");
  (*fabric)->SetHash(name == "addresses" ? SwitchHash::kAddresses
                     : name == "ttl"     ? SwitchHash::kTtl
                     : name == "spray"   ? SwitchHash::kSpray
                     : name == "qpn"     ? SwitchHash::kQpn
                                         : SwitchHash::kPorts);
  cli.Finish(absl::OkStatus(), {{"lab", cli.lab}, {"hash", name}},
             absl::StrCat("leaves choose spines by: ", name, "\nundo: cwlab hash ports --lab ", cli.lab, "\n"));
}

void AddLinkOptions(CLI::App* verb, FaultOptions& options, bool required) {
  verb->add_option("--leaf", options.leaf, "leaf number")->required(required);
  verb->add_option("--spine", options.spine, "spine number")->required(required);
}

void AddDirection(CLI::App* verb, FaultOptions& options) {
  verb->add_option("--direction", options.direction, "up (leaf to spine), down, or both")
      ->check(CLI::IsMember({"up", "down", "both"}))
      ->capture_default_str();
}

void AddMatch(CLI::App* verb, FaultOptions& options) {
  verb->add_option("--match", options.match, "which packets: all, RoCE data, or the agents' probes")
      ->check(CLI::IsMember({"all", "data", "probes"}))
      ->capture_default_str();
}

using Options = std::shared_ptr<FaultOptions>;
// name, help, whether a link has to be given
using AddVerb = std::function<CLI::App*(const char*, const char*, bool)>;

void AddHashVerb(CLI::App& app, Cli& cli) {
  CLI::App* hash = app.add_subcommand("hash", "what leaves choose the spine of RoCE packets by");
  auto by = std::make_shared<std::string>();
  hash->fallthrough();
  hash->add_option(
          "by", *by,
          "ports (as at the start), addresses only, ports and ttl, ports and qpn, or spray: each packet by chance")
      ->required()
      ->check(CLI::IsMember({"ports", "addresses", "ttl", "qpn", "spray"}));
  hash->callback([&cli, by] { SetHash(cli, *by); });
}

void AddLossVerbs(const AddVerb& add, Cli& cli, const Options& o) {
  CLI::App* drop = add("drop", "drop every packet silently", true);
  AddDirection(drop, *o);
  AddMatch(drop, *o);
  drop->callback([&cli, o] {
    Apply(cli, *o, "drops everything that matches " + o->match,
          [o](Fabric& f, const LinkDirection& link) { return f.SetFault(link, Fault::Drop(MatchOf(o->match))); });
  });

  CLI::App* share = add("share", "drop a share of the packets at random", true);
  AddDirection(share, *o);
  AddMatch(share, *o);
  share->add_option("--percent", o->percent, "share in percent")->required()->check(CLI::Range(0.0, 100.0));
  share->callback([&cli, o] {
    Apply(cli, *o, absl::StrFormat("drops %g %% of %s", o->percent, o->match), [o](Fabric& f, const LinkDirection& l) {
      return f.SetFault(l, Fault::Share(o->percent / 100, MatchOf(o->match)));
    });
  });

  CLI::App* corrupt = add("corrupt", "flip a bit in a share of the RoCE packets at random", true);
  AddDirection(corrupt, *o);
  AddMatch(corrupt, *o);
  corrupt->add_option("--percent", o->percent, "share in percent")->required()->check(CLI::Range(0.0, 100.0));
  corrupt->callback([&cli, o] {
    Apply(cli, *o, absl::StrFormat("damages %g %% of %s", o->percent, o->match),
          [o](Fabric& f, const LinkDirection& l) {
            return f.SetFault(l, Fault::Corrupt(o->percent / 100, MatchOf(o->match)));
          });
  });
}

void AddLinkVerbs(const AddVerb& add, Cli& cli, const Options& o) {
  CLI::App* pause = add("pause", "hold all packets in the sending port's queue", true);
  AddDirection(pause, *o);
  pause->callback([&cli, o] {
    Apply(cli, *o, "paused", [](Fabric& f, const LinkDirection& link) { return f.SetFault(link, Fault::Pause()); });
  });

  CLI::App* rate = add("rate", "change the link's rate", true);
  AddDirection(rate, *o);
  rate->add_option("--mbps", o->mbps, "Mbit/s")->required();
  rate->callback([&cli, o] {
    Apply(cli, *o, absl::StrFormat("%g Mbit/s", o->mbps),
          [o](Fabric& f, const LinkDirection& link) { return f.SetLinkRate(link, o->mbps); });
  });

  CLI::App* link = add("link", "take the link down, or up again", true);
  link->add_option("state", o->state, "up or down")->required()->check(CLI::IsMember({"up", "down"}));
  link->callback([&cli, o] { SetLink(cli, *o); });

  CLI::App* swap = add("swap", "exchange a leaf's cables to two spines, at the leaf", true);
  swap->add_option("--with", o->with, "number of the other spine")->required();
  swap->add_flag("--back", o->back, "plug them in as planned again");
  swap->callback([&cli, o] { Swap(cli, *o); });

  CLI::App* clear = add("clear", "clear one link's faults, or all but swapped cables when no link is given", false);
  AddDirection(clear, *o);
  clear->callback([&cli, o] { Clear(cli, *o); });
}

}  // namespace

void AddFaultVerb(CLI::App& app, Cli& cli) {
  AddHashVerb(app, cli);
  CLI::App* fault = app.add_subcommand("fault", "break or mend a leaf-spine link");
  fault->require_subcommand(1);
  auto o = std::make_shared<FaultOptions>();
  const AddVerb add = [&](const char* name, const char* help, bool link_required) {
    CLI::App* verb = fault->add_subcommand(name, help);
    verb->fallthrough();
    AddLinkOptions(verb, *o, link_required);
    return verb;
  };
  AddLossVerbs(add, cli, o);
  AddLinkVerbs(add, cli, o);
}

}  // namespace cw::lab
