//! Commands of manager modules that have no place here: they are known, and refused as by a manager that runs without the
//! module, or without an orchestrator. The table is data of 16.2.15.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::signature;
use crate::commands::spec::{Spec, spec};
use types::Errno;

/// Modules that ask an orchestrator for everything.
const ORCHESTRATED: [&str; 2] = ["orchestrator", "nfs"];

const fn away(module: &'static str, perm: &'static str, sig: &'static str) -> Spec {
    spec(("mgr", perm), sig, "not here: the module is not", refused).by_manager(module)
}

fn refused(cmd: &Command, _: &Context<'_>) -> Outcome {
    let is_it = |s: &&Spec| signature::prefix(s.sig) == cmd.prefix;
    let module = TABLE
        .iter()
        .find(is_it)
        .and_then(|s| s.manager)
        .unwrap_or_default();
    if ORCHESTRATED.contains(&module) {
        return Outcome::absent("No orchestrator configured: skep has none (docs/operating/cluster.md)");
    }
    let why = format!(
        "Module '{module}' is not enabled/loaded (required by command '{}'): skep does not have it",
        cmd.prefix
    );
    Outcome::error(Errno::EOPNOTSUPP, why)
}

#[rustfmt::skip]
pub const TABLE: &[Spec] = &[
    away("influx", "rw", "influx config-set key:str value:str"),
    away("influx", "r", "influx config-show"),
    away("influx", "rw", "influx send"),
    away("nfs", "r", "nfs cluster config get cluster_id:str"),
    away("nfs", "rw", "nfs cluster config reset cluster_id:str"),
    away("nfs", "rw", "nfs cluster config set cluster_id:str"),
    away("nfs", "rw", "nfs cluster create cluster_id:str placement?:str ingress?:bool virtual_ip?:str port?:int"),
    away("nfs", "rw", "nfs cluster delete cluster_id:str"),
    away("nfs", "r", "nfs cluster info cluster_id?:str"),
    away("nfs", "r", "nfs cluster ls"),
    away("nfs", "rw", "nfs cluster rm cluster_id:str"),
    away("nfs", "rw", "nfs export apply cluster_id:str"),
    away("nfs", "rw", "nfs export create cephfs cluster_id:str pseudo_path:str fsname:str path?:str readonly?:bool client_addr?*:str squash?:str sectype?*:str"),
    away("nfs", "rw", "nfs export create rgw cluster_id:str pseudo_path:str bucket?:str user_id?:str readonly?:bool client_addr?*:str squash?:str sectype?*:str"),
    away("nfs", "rw", "nfs export delete cluster_id:str pseudo_path:str"),
    away("nfs", "r", "nfs export get cluster_id:str pseudo_path:str"),
    away("nfs", "r", "nfs export info cluster_id:str pseudo_path:str"),
    away("nfs", "r", "nfs export ls cluster_id:str detailed?:bool"),
    away("nfs", "rw", "nfs export rm cluster_id:str pseudo_path:str"),
    away("orchestrator", "rw", "orch action:choice(start|stop|restart|redeploy|reconfig) service_name:str"),
    away("orchestrator", "rw", "orch apply service_type?:choice(mon|mgr|rbd-mirror|cephfs-mirror|crash|alertmanager|grafana|node-exporter|prometheus|mds|rgw|nfs|iscsi|cephadm-exporter|snmp-gateway) placement?:str dry_run?:bool format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml) unmanaged?:bool no_overwrite?:bool"),
    away("orchestrator", "rw", "orch apply iscsi pool:str api_user:str api_password:str trusted_ip_list?:str placement?:str unmanaged?:bool dry_run?:bool format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml) no_overwrite?:bool"),
    away("orchestrator", "rw", "orch apply mds fs_name:str placement?:str dry_run?:bool unmanaged?:bool format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml) no_overwrite?:bool"),
    away("orchestrator", "rw", "orch apply nfs svc_id:str placement?:str format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml) port?:int dry_run?:bool unmanaged?:bool no_overwrite?:bool"),
    away("orchestrator", "rw", "orch apply osd all_available_devices?:bool format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml) unmanaged?:bool dry_run?:bool no_overwrite?:bool"),
    away("orchestrator", "rw", "orch apply rgw svc_id:str placement?:str realm?:str zone?:str networks?*:str port?:int ssl?:bool dry_run?:bool format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml) unmanaged?:bool no_overwrite?:bool"),
    away("orchestrator", "rw", "orch apply snmp-gateway snmp_version:choice(V2c|V3) destination:str port?:int engine_id?:str auth_protocol?:choice(MD5|SHA) privacy_protocol?:choice(DES|AES) placement?:str unmanaged?:bool dry_run?:bool format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml) no_overwrite?:bool"),
    away("orchestrator", "rw", "orch cancel"),
    away("orchestrator", "rw", "orch daemon action:choice(start|stop|restart|reconfig) name:str"),
    away("orchestrator", "rw", "orch daemon add daemon_type?:choice(mon|mgr|rbd-mirror|cephfs-mirror|crash|alertmanager|grafana|node-exporter|prometheus|mds|rgw|nfs|iscsi|cephadm-exporter|snmp-gateway) placement?:str"),
    away("orchestrator", "rw", "orch daemon add iscsi pool:str api_user:str api_password:str trusted_ip_list?:str placement?:str"),
    away("orchestrator", "rw", "orch daemon add mds fs_name:str placement?:str"),
    away("orchestrator", "rw", "orch daemon add nfs svc_id:str placement?:str"),
    away("orchestrator", "rw", "orch daemon add osd svc_arg?:str method?:choice(raw|lvm)"),
    away("orchestrator", "rw", "orch daemon add rgw svc_id:str placement?:str port?:int ssl?:bool"),
    away("orchestrator", "rw", "orch daemon redeploy name:str image?:str"),
    away("orchestrator", "rw", "orch daemon rm names*:str force?:bool"),
    away("orchestrator", "r", "orch device ls hostname?*:str format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml) refresh?:bool wide?:bool"),
    away("orchestrator", "rw", "orch device zap hostname:str path:str force?:bool"),
    away("orchestrator", "rw", "orch host add hostname:str addr?:str labels?*:str maintenance?:bool"),
    away("orchestrator", "rw", "orch host drain hostname:str force?:bool"),
    away("orchestrator", "rw", "orch host label add hostname:str label:str"),
    away("orchestrator", "rw", "orch host label rm hostname:str label:str force?:bool"),
    away("orchestrator", "r", "orch host ls format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml) host_pattern?:str label?:str host_status?:str"),
    away("orchestrator", "rw", "orch host maintenance enter hostname:str force?:bool"),
    away("orchestrator", "rw", "orch host maintenance exit hostname:str"),
    away("orchestrator", "rw", "orch host ok-to-stop hostname:str"),
    away("orchestrator", "rw", "orch host rescan hostname:str with_summary?:bool"),
    away("orchestrator", "rw", "orch host rm hostname:str force?:bool offline?:bool"),
    away("orchestrator", "rw", "orch host set-addr hostname:str addr:str"),
    away("orchestrator", "rw", "orch osd rm osd_id*:str replace?:bool force?:bool zap?:bool no_destroy?:bool"),
    away("orchestrator", "rw", "orch osd rm status format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml)"),
    away("orchestrator", "rw", "orch osd rm stop osd_id*:str"),
    away("orchestrator", "rw", "orch pause"),
    away("orchestrator", "r", "orch ps hostname?:str service_name?:str daemon_type?:str daemon_id?:str format?:choice(plain|json|json-pretty|yaml|xml-pretty|xml) refresh?:bool"),
    away("orchestrator", "rw", "orch resume"),
    away("orchestrator", "rw", "orch rm service_name:str force?:bool"),
    away("orchestrator", "rw", "orch set backend module_name?:str"),
    away("orchestrator", "rw", "orch upgrade check image?:str ceph_version?:str"),
    away("orchestrator", "r", "orch upgrade ls image?:str tags?:bool"),
    away("orchestrator", "rw", "orch upgrade pause"),
    away("orchestrator", "rw", "orch upgrade resume"),
    away("orchestrator", "rw", "orch upgrade start image?:str ceph_version?:str daemon_types?:str hosts?:str services?:str limit?:int"),
    away("orchestrator", "rw", "orch upgrade status"),
    away("orchestrator", "rw", "orch upgrade stop"),
    away("prometheus", "w", "healthcheck history clear"),
    away("prometheus", "r", "healthcheck history ls format?:choice(plain|json|json-pretty|yaml)"),
    away("prometheus", "r", "prometheus file_sd_config"),
    away("restful", "rw", "restful create-key key_name:str"),
    away("restful", "rw", "restful create-self-signed-cert"),
    away("restful", "rw", "restful delete-key key_name:str"),
    away("restful", "r", "restful list-keys"),
    away("restful", "rw", "restful restart"),
    away("selftest", "rw", "mgr self-test background start workload:str"),
    away("selftest", "rw", "mgr self-test background stop"),
    away("selftest", "rw", "mgr self-test cluster-log channel:str priority:str message:str"),
    away("selftest", "rw", "mgr self-test config get key:str"),
    away("selftest", "rw", "mgr self-test config get_localized key:str"),
    away("selftest", "rw", "mgr self-test health clear checks*:str"),
    away("selftest", "rw", "mgr self-test health set checks:str"),
    away("selftest", "rw", "mgr self-test insights_set_now_offset hours:str"),
    away("selftest", "rw", "mgr self-test module module:str"),
    away("selftest", "r", "mgr self-test python-version"),
    away("selftest", "rw", "mgr self-test remote"),
    away("selftest", "rw", "mgr self-test run"),
    away("telegraf", "rw", "telegraf config-set key:str value:str"),
    away("telegraf", "r", "telegraf config-show"),
    away("telegraf", "rw", "telegraf send"),
    away("test_orchestrator", "w", "test_orchestrator load_data"),
    away("zabbix", "rw", "zabbix config-set key:str value:str"),
    away("zabbix", "r", "zabbix config-show"),
    away("zabbix", "r", "zabbix discovery"),
    away("zabbix", "rw", "zabbix send"),
];
